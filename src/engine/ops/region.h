#pragma once
// What an op asks of the threads, as a dry run records it: its parallel regions and what each of their tasks costs.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vitrine {

struct TaskCost {
  const std::byte* data = nullptr;  // where its weights begin, if they lie in one piece; null also without weights
  int64_t bytes = 0;                // read of weights and of cached keys and values
  int64_t multiply_adds = 0;        // of products, and of scores with values
  int64_t elements = 0;             // of activations that are read once for other work
};

/// The sums; data is that of the first.
TaskCost operator+(const TaskCost& a, const TaskCost& b);
/// A task of so many times that.
TaskCost operator*(int64_t times, const TaskCost& cost);

/// One call of Context::run.
struct RegionRecord {
  /// Neighboring tasks of one cost, whose data lie one behind the other.
  struct Run {
    int64_t tasks = 0;
    TaskCost each;
  };
  std::vector<Run> runs;
  bool shared = false;  // among the threads; false: the caller does all of it

  void add(const TaskCost& task);
  int64_t tasks() const;
  TaskCost total() const;
  /// Whether a pool of so many threads is entered for it.
  bool enters_pool(int threads) const { return shared && threads > 1 && tasks() > 1; }
  /// What each thread gets as its own share (ThreadPool::share); all of it is thread 0's where no pool is entered.
  std::vector<TaskCost> by_thread(int threads) const;
  /// Calls f(thread, data, bytes) for the pieces of weights that each thread's own share reads.
  template <class F>
  void each_piece(int threads, F&& f) const;

 private:
  // Calls f(thread, run, tasks before those in the run, tasks) for the parts of the runs that are each thread's.
  template <class F>
  void each_part(int threads, F&& f) const;
};

}  // namespace vitrine

// -------------------------------------------------------------------------------------------------------------------
#include <algorithm>

#include "base/thread_pool.h"

namespace vitrine {

template <class F>
void RegionRecord::each_part(int threads, F&& f) const {
  const int sharing = enters_pool(threads) ? threads : 1;
  const int64_t all = tasks();
  size_t run = 0;
  int64_t before = 0;  // tasks of the runs before this one
  for (int thread = 0; thread < sharing; ++thread) {
    const ThreadPool::Chunks share = ThreadPool::share(all, thread, sharing);
    for (int64_t task = share.begin; task < share.end;) {
      while (task >= before + runs[run].tasks) before += runs[run++].tasks;
      const int64_t end = std::min(share.end, before + runs[run].tasks);
      f(thread, runs[run], task - before, end - task);
      task = end;
    }
  }
}

template <class F>
void RegionRecord::each_piece(int threads, F&& f) const {
  each_part(threads, [&](int thread, const Run& run, int64_t first, int64_t n) {
    if (run.each.data != nullptr) f(thread, run.each.data + first * run.each.bytes, n * run.each.bytes);
  });
}

}  // namespace vitrine
