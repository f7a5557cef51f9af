#pragma once
// One pool of threads for everything. Workers spin while a step runs (a sleeping worker costs 30-160 us to wake, a
// spinning one below 1 us) and sleep on a futex between steps.
#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace vitrine {

/// Runs chunked work on the caller and its workers.
/// Chunks are cut by shape, never by the number of threads, so results do not depend on it. Each thread has its own
/// contiguous share first (it finds the same rows in its cache again) and then takes from the others, so that a core
/// lost to a neighbor costs its share and no more. Not re-entrant: a chunk must not call run(). One caller at a time.
class ThreadPool {
 public:
  /// threads: the caller included; 0 means the cores this process may use. Errors: RunError if the system gives fewer.
  /// cpus: for each thread a processor that it stays on; empty: the system moves them. The caller, thread 0, is not pinned:
  /// threads that it starts later would inherit that. A processor that the system refuses is left out.
  explicit ThreadPool(int threads = 0, const std::vector<int>& cpus = {});
  ~ThreadPool();
  /// A pool without threads of its own: a part of another one's, whose threads come and go (help(), dismiss()).
  struct Guests {
    int threads;  // at most, the caller of run() included
  };
  explicit ThreadPool(Guests guests);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  /// Chunks [begin, end) of all chunks of a region, which a thread of so many takes first.
  struct Chunks {
    int64_t begin, end;
  };
  static constexpr Chunks share(int64_t chunks, int thread, int threads) {
    return {chunks * thread / threads, chunks * (thread + 1) / threads};
  }

  /// Works for whoever calls run(), as thread number `thread` of [1, threads()), until the pool is dismissed.
  void help(int thread);
  /// For who called run(): sends the guests away, and those that come later, until admit().
  void dismiss();
  void admit();

  /// Calls f(chunk, thread) for every chunk in [0, chunks); thread in [0, threads()) is unique among running chunks.
  /// f must not throw.
  template <class F>
  void run(int64_t chunks, F&& f) {
    if (chunks <= 0) return;
    if (threads_ == 1 || chunks == 1) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk) f(chunk, 0);
      return;
    }
    using Fn = std::remove_reference_t<F>;
    run_erased(
        chunks, [](void* self, int64_t chunk, int thread) { (*static_cast<Fn*>(self))(chunk, thread); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  struct State;
  using Erased = void (*)(void* self, int64_t chunk, int thread);
  void run_erased(int64_t chunks, Erased call, void* self);
  void end_workers();

  int threads_;
  std::unique_ptr<State> state_;
};

/// Cores this process may run on (the affinity mask and the container's quota count).
int usable_cores();

}  // namespace vitrine
