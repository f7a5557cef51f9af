#pragma once
// Ranks as threads of the test's own process: Comm without a launcher, and under sanitizers.
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "train/comm.h"

namespace vitrine {

/// Calls f(comm) on every rank, each in a thread of its own; abort() of one ends the others by an Ended in their next call.
/// Returns what each rank threw.
class ThreadRanks {
 public:
  struct Ended {};

  static std::vector<std::exception_ptr> run(int ranks, const std::function<void(Comm&)>& f) {
    ThreadRanks shared(ranks);
    std::vector<std::exception_ptr> thrown(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        One comm(shared, r);
        try {
          f(comm);
        } catch (...) {
          thrown[static_cast<size_t>(r)] = std::current_exception();
          comm.abort(1);
        }
      });
    for (std::thread& thread : threads) thread.join();
    return thrown;
  }
  /// The same for f that must not throw.
  static void run_all(int ranks, const std::function<void(Comm&)>& f) {
    for (const std::exception_ptr& error : run(ranks, f))
      if (error) std::rethrow_exception(error);
  }

 private:
  // What is started is copied at once: who starts before the numbers are complete gets wrong sums.
  struct Started {
    float* values;
    std::vector<size_t> cuts;
    std::vector<float> copy;  // [cuts.front(), cuts.back())
    bool gather;
    int to;
  };
  class One final : public Comm {
   public:
    One(ThreadRanks& shared, int rank) : shared_(shared) {
      rank_ = rank;
      size_ = on_this_machine_ = static_cast<int>(shared.given_.size());
    }
    void all_reduce(std::span<double> numbers, Fold fold) override {
      shared_.given_[mine()] = numbers.data();
      shared_.meet();
      std::vector<double> result(numbers.size());
      for (size_t i = 0; i < numbers.size(); ++i) {
        result[i] = shared_.given_[0][i];
        for (size_t r = 1; r < shared_.given_.size(); ++r) {
          const double x = shared_.given_[r][i];
          result[i] = fold == Fold::sum ? result[i] + x : std::max(result[i], x);
        }
      }
      shared_.meet();
      std::copy(result.begin(), result.end(), numbers.begin());
    }
    void start_reduce_scatter(float* numbers, std::span<const size_t> cuts) override { start(numbers, cuts, false, kAll); }
    void start_gather(float* numbers, std::span<const size_t> cuts, int to) override { start(numbers, cuts, true, to); }
    void wait() override {
      shared_.meet();
      const std::vector<std::vector<Started>>& all = shared_.started_;
      for (size_t k = 0; k < all[mine()].size(); ++k) {
        const Started& s = all[mine()][k];
        if (s.gather) {
          if (s.to != kAll && s.to != rank_) continue;
          for (size_t r = 0; r < all.size(); ++r)
            std::copy(all[r][k].copy.begin() + at(s, r), all[r][k].copy.begin() + at(s, r + 1), s.values + s.cuts[r]);
        } else {
          for (size_t i = s.cuts[mine()]; i < s.cuts[mine() + 1]; ++i) {
            float sum = 0;
            for (const std::vector<Started>& rank : all) sum += rank[k].copy[i - s.cuts.front()];
            s.values[i] = sum;
          }
        }
      }
      shared_.meet();
      shared_.started_[mine()].clear();
    }
    void abort(int) override { shared_.end(); }

   private:
    size_t mine() const { return static_cast<size_t>(rank_); }
    static std::ptrdiff_t at(const Started& s, size_t r) { return static_cast<std::ptrdiff_t>(s.cuts[r] - s.cuts.front()); }
    void start(float* numbers, std::span<const size_t> cuts, bool gather, int to) {
      shared_.started_[mine()].push_back(
          {numbers, {cuts.begin(), cuts.end()}, {numbers + cuts.front(), numbers + cuts.back()}, gather, to});
    }
    ThreadRanks& shared_;
  };

  explicit ThreadRanks(int ranks) : given_(static_cast<size_t>(ranks)), started_(static_cast<size_t>(ranks)) {}

  // Until all ranks are here.
  void meet() {
    std::unique_lock lock(mutex_);
    const size_t round = round_;
    if (++here_ == given_.size()) {
      here_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return ended_ || round_ != round; });
    if (round_ == round) throw Ended{};
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<double*> given_;
  std::vector<std::vector<Started>> started_;
  size_t here_ = 0, round_ = 0;
  bool ended_ = false;
};

}  // namespace vitrine
