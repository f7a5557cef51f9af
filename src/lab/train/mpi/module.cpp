// Comm over MPI. Sums are taken here and not by MPI's own reductions: those may add in any order, and their non-blocking
// forms go through one rank. Here every rank sends each other rank its part and adds what it receives in the order of ranks:
// the least that a link must carry, (ranks - 1) / ranks of the values each way, and the same bits in every run.
#include "train/mpi/module.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <vector>

namespace vitrine {
namespace {

// Adds the time until its end.
class Timed {
 public:
  explicit Timed(double& seconds) : seconds_(seconds) {}
  ~Timed() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class MpiComm final : public Comm {
 public:
  MpiComm() {
    int provided = 0;  // the pool's threads never call MPI
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine);
    MPI_Comm_size(machine, &on_this_machine_);
    MPI_Comm_free(&machine);
    MPI_Comm_dup(MPI_COMM_WORLD, &ending_);
    MPI_Win_allocate(rank_ == 0 ? sizeof(int) : 0, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &failed_, &failed_window_);
    if (rank_ == 0) *failed_ = 0;
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~MpiComm() override {
    MPI_Win_free(&failed_window_);
    MPI_Comm_free(&ending_);
    MPI_Finalize();
  }

  void all_reduce(std::span<double> numbers, Fold fold) override {
    const Timed timed(seconds_);
    if (numbers.empty()) {
      MPI_Barrier(MPI_COMM_WORLD);
      return;
    }
    const size_t n = numbers.size();
    everyones_.resize(n * static_cast<size_t>(size_));
    MPI_Allgather(numbers.data(), static_cast<int>(n), MPI_DOUBLE, everyones_.data(), static_cast<int>(n), MPI_DOUBLE,
                  MPI_COMM_WORLD);
    for (size_t i = 0; i < n; ++i) {
      double x = everyones_[i];
      for (size_t at = n + i; at < everyones_.size(); at += n)
        x = fold == Fold::sum ? x + everyones_[at] : std::max(x, everyones_[at]);
      numbers[i] = x;
    }
  }

  void start_reduce_scatter(float* numbers, std::span<const size_t> cuts) override {
    const Timed timed(seconds_);
    Started& s = start(numbers, cuts);
    s.others.resize(part(cuts, rank_) * static_cast<size_t>(size_ - 1));
    for (int i = 1; i < size_; ++i) {  // each begins with its neighbor, so that no rank is everybody's first
      const int to = (rank_ + i) % size_, from = (rank_ + size_ - i) % size_;
      receive(s, s.others.data() + place(from) * part(cuts, rank_), part(cuts, rank_), from);
      send(s, numbers + cuts[static_cast<size_t>(to)], part(cuts, to), to);
    }
  }

  void start_gather(float* numbers, std::span<const size_t> cuts, int to) override {
    const Timed timed(seconds_);
    Started& s = start(numbers, cuts);
    for (int i = 1; i < size_; ++i) {
      const int next = (rank_ + i) % size_, from = (rank_ + size_ - i) % size_;
      if (to == kAll || to == rank_) receive(s, numbers + cuts[static_cast<size_t>(from)], part(cuts, from), from);
      if (to == kAll || to == next) send(s, numbers + cuts[static_cast<size_t>(rank_)], part(cuts, rank_), next);
    }
  }

  void advance() override {
    if (started_.empty()) return;
    const Timed timed(seconds_);
    int done = 0;
    do {
      Started& oldest = started_.front();
      MPI_Testall(static_cast<int>(oldest.requests.size()), oldest.requests.data(), &done, MPI_STATUSES_IGNORE);
      if (done != 0) finish_oldest();
    } while (done != 0 && !started_.empty());
  }

  void wait() override {
    const Timed timed(seconds_);
    while (!started_.empty()) wait_for_oldest();
  }

  void begin_abort() override {
    const int yes = 1;
    int before = 0;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, failed_window_);
    MPI_Fetch_and_op(&yes, &before, MPI_INT, 0, 0, MPI_REPLACE, failed_window_);
    MPI_Win_unlock(0, failed_window_);
    // A barrier that the first never enters: the others serve MPI in it until they are ended.
    if (before != 0) MPI_Barrier(ending_);
  }

  void abort(int code) override { MPI_Abort(MPI_COMM_WORLD, code); }

 private:
  // What is under way at once: others' parts need memory until they are added.
  static constexpr size_t kAtOnce = 4;
  struct Started {
    float* mine;                // this rank's part
    size_t count;               // of it
    std::vector<float> others;  // that part of every other rank, in their order; empty: nothing is to be added
    std::vector<MPI_Request> requests;
  };

  static size_t part(std::span<const size_t> cuts, int rank) {
    return cuts[static_cast<size_t>(rank) + 1] - cuts[static_cast<size_t>(rank)];
  }
  size_t place(int other) const { return static_cast<size_t>(other < rank_ ? other : other - 1); }

  Started& start(float* numbers, std::span<const size_t> cuts) {
    if (started_.size() == kAtOnce) wait_for_oldest();
    return started_.emplace_back(
        Started{.mine = numbers + cuts[static_cast<size_t>(rank_)], .count = part(cuts, rank_), .others = {}, .requests = {}});
  }
  // One tag serves all: between two ranks messages stay in order, and every rank starts the same things in the same order.
  static void receive(Started& s, float* to, size_t count, int from) {
    if (count > 0)
      MPI_Irecv(to, static_cast<int>(count), MPI_FLOAT, from, 0, MPI_COMM_WORLD, &s.requests.emplace_back(MPI_REQUEST_NULL));
  }
  static void send(Started& s, const float* from, size_t count, int to) {
    if (count > 0)
      MPI_Isend(from, static_cast<int>(count), MPI_FLOAT, to, 0, MPI_COMM_WORLD, &s.requests.emplace_back(MPI_REQUEST_NULL));
  }
  void wait_for_oldest() {
    Started& oldest = started_.front();
    MPI_Waitall(static_cast<int>(oldest.requests.size()), oldest.requests.data(), MPI_STATUSES_IGNORE);
    finish_oldest();
  }
  void finish_oldest() {
    const Started& s = started_.front();
    if (!s.others.empty()) {
      const float* const others = s.others.data();
      const auto before = static_cast<size_t>(rank_), after = static_cast<size_t>(size_ - 1) - before;
      constexpr size_t kBlock = 4096;  // its sums stay in the first cache
      float sums[kBlock];
      for (size_t begin = 0; begin < s.count; begin += kBlock) {
        const size_t n = std::min(kBlock, s.count - begin);
        float* const mine = s.mine + begin;
        const auto add = [&](const float* x) {
          for (size_t i = 0; i < n; ++i) sums[i] += x[i];
        };
        std::fill(sums, sums + n, 0.0f);
        for (size_t r = 0; r < before; ++r) add(others + r * s.count + begin);
        add(mine);
        for (size_t r = before; r < before + after; ++r) add(others + r * s.count + begin);
        std::copy(sums, sums + n, mine);
      }
    }
    started_.pop_front();
  }

  std::deque<Started> started_;
  std::vector<double> everyones_;
  MPI_Comm ending_ = MPI_COMM_NULL;
  MPI_Win failed_window_ = MPI_WIN_NULL;
  int* failed_ = nullptr;  // on rank 0: whether a rank has failed
};

}  // namespace
}  // namespace vitrine

extern "C" const char* vitrine_mpi_version() { return vitrine::kMpiModuleIs; }
extern "C" vitrine::Comm* vitrine_mpi_join() { return new vitrine::MpiComm; }
