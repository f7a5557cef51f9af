#include "base/thread_pool.h"

#include <sched.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>

#include "base/cpu_topology.h"
#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace vitrine {
namespace {

constexpr auto kSpin = std::chrono::milliseconds(3);  // longer than the serial gaps inside a step, shorter than a pause

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

}  // namespace

// One word carries the region's generation and the number of workers inside it. A worker enters only while the region
// is open (odd generation), so the caller need not wait for one that the system has not scheduled yet.
struct ThreadPool::State {
  static constexpr uint64_t kInside = 0xffff;
  explicit State(int threads) : shares(static_cast<size_t>(threads)) {}
  alignas(64) std::atomic<uint64_t> word{0};  // generation << 16 | workers inside; generation is odd while open
  alignas(64) std::atomic<uint32_t> wake{0};  // bumped to wake sleepers
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  Erased call = nullptr;
  void* self = nullptr;
  std::vector<Share> shares;
  std::vector<std::thread> workers;

  void work(int thread) {
    const size_t n = shares.size();
    for (size_t i = 0; i < n; ++i) {
      Share& share = shares[(static_cast<size_t>(thread) + i) % n];
      for (;;) {
        const int64_t chunk = share.next.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= share.end) break;
        call(self, chunk, thread);
      }
    }
  }

  void worker(int thread) {
    uint64_t seen = 0;  // the generation this worker last took part in
    auto idle_since = std::chrono::steady_clock::now();
    int polls = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      uint64_t now = word.load(std::memory_order_acquire);
      const uint64_t generation = now >> 16;
      if ((generation & 1) != 0 && generation != seen) {
        if (!word.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) continue;
        seen = generation;
        work(thread);
        word.fetch_sub(1, std::memory_order_acq_rel);
        idle_since = std::chrono::steady_clock::now();
        continue;
      }
      relax();
      if (++polls % 256 != 0 || std::chrono::steady_clock::now() - idle_since < kSpin) continue;
      const uint32_t ticket = wake.load(std::memory_order_seq_cst);
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      // A region opened since the last look must not be slept through.
      const uint64_t again = word.load(std::memory_order_seq_cst) >> 16;
      if (!stop.load(std::memory_order_seq_cst) && ((again & 1) == 0 || again == seen)) wake.wait(ticket);
      sleepers.fetch_sub(1, std::memory_order_seq_cst);
      idle_since = std::chrono::steady_clock::now();
    }
  }
};

ThreadPool::ThreadPool(int threads, const std::vector<int>& cpus) : threads_(threads > 0 ? threads : usable_cores()) {
  state_ = std::make_unique<State>(threads_);
  try {
    for (int i = 1; i < threads_; ++i) {
      const int cpu = static_cast<size_t>(i) < cpus.size() ? cpus[static_cast<size_t>(i)] : -1;
      state_->workers.emplace_back([this, i, cpu] {
        if (cpu >= 0) stay_on({&cpu, 1});
        state_->worker(i);
      });
    }
  } catch (const std::system_error& e) {
    const size_t started = state_->workers.size() + 1;
    end_workers();
    throw RunError("the system gives " + std::to_string(started) + " of " + std::to_string(threads_) + " threads (" + e.what() +
                   "). Ask for fewer");
  }
}

ThreadPool::ThreadPool(Guests guests) : threads_(guests.threads), state_(std::make_unique<State>(guests.threads)) {}

void ThreadPool::help(int thread) { state_->worker(thread); }

void ThreadPool::dismiss() {
  state_->stop.store(true);
  state_->wake.fetch_add(1);
  state_->wake.notify_all();
}

void ThreadPool::admit() { state_->stop.store(false); }

ThreadPool::~ThreadPool() { end_workers(); }

void ThreadPool::end_workers() {
  dismiss();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::run_erased(int64_t chunks, Erased call, void* self) {
  State& s = *state_;
  s.call = call;
  s.self = self;
  for (int i = 0; i < threads_; ++i) {
    const Chunks own = share(chunks, i, threads_);
    s.shares[static_cast<size_t>(i)].next.store(own.begin, std::memory_order_relaxed);
    s.shares[static_cast<size_t>(i)].end = own.end;
  }
  const uint64_t closed = s.word.load(std::memory_order_relaxed);
  s.word.store(closed + (uint64_t{1} << 16), std::memory_order_seq_cst);  // open: the generation becomes odd
  if (s.sleepers.load(std::memory_order_seq_cst) > 0) {
    s.wake.fetch_add(1, std::memory_order_seq_cst);
    s.wake.notify_all();
  }
  s.work(0);
  s.word.fetch_add(uint64_t{1} << 16, std::memory_order_acq_rel);  // closed: nobody enters any more
  while ((s.word.load(std::memory_order_acquire) & State::kInside) != 0) relax();
}

int usable_cores() {
  int cores = 1;
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
#endif
  long long quota = 0, period = 0;
  if (FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
    if (std::fscanf(file, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
      const int allowed = static_cast<int>((quota + period - 1) / period);
      if (allowed < cores) cores = allowed;
    }
    std::fclose(file);
  }
  return cores < 1 ? 1 : cores;
}

}  // namespace vitrine
