#pragma once
// Many streams over one model. A thread owns the engine and runs one step after another; each holds the pending token of every
// stream that decodes and a piece of the prompts that are being read (continuous batching, Orca, OSDI 2022; chunked prefill,
// arXiv:2308.16369). A stream may come, end or leave between any two steps.
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "base/error.h"
#include "schedule/stats.h"
#include "schedule/work.h"

namespace vitrine {

struct SchedulerOptions {
  int64_t running = 64;           // streams at once
  int64_t waiting = 512;          // streams and jobs in the queue, besides streams that are about to run
  int64_t running_per_owner = 0;  // streams of one owner at once; 0: no limit of its own
  int64_t waiting_per_owner = 0;  // of one owner among them; 0: no limit of its own
  int64_t prefill_rows = 0;       // prompt tokens in a step beside streams that decode; 0: so many that it takes at most about
                                  // 2.2 times as long as one without
  size_t cache_bytes = 0;         // of keys and values, of running streams and of kept prefixes together; 0: half of free memory
  size_t kept_bytes = 0;          // kept prefixes are given up while more of it is in use; 0: cache_bytes
  bool clear_pages = false;       // KvCache::clear_pages
  int64_t positions = 0;          // of a sequence; 0: the model's context, or what cache_bytes hold if that is less
};

struct KeptSequences;

/// The queue has no place.
class QueueFull : public RunError {
 public:
  QueueFull(const std::string& what, double after) : RunError(what), seconds(after) {}
  double seconds;  // after which one may be free: an estimate, at least 1
};

/// No new work is taken.
class Draining : public RunError {
 public:
  using RunError::RunError;
};

/// With Numerics::exact all bits are those of generate(), whatever runs beside a stream and whatever it found in the prefix
/// cache. Without it, steps of more than 8 rows may take other kernels, and of two tokens about as likely the other one may come.
///
/// Prompts go on from what an earlier sequence, running or ended, left in the cache of keys and values, as far as they begin
/// alike. Ended ones are kept while kept_bytes allow, those used last longest. If running streams need more than there is, the
/// youngest gives its cache back, waits in front of the queue and reads its tokens again; its readers notice a pause only.
///
/// All functions may be called from any thread, but not from a Sink or a job.
class Scheduler {
 public:
  /// Starts its thread. The engine is its own until it ends; meanwhile others may use only what reads tokenizer and configuration
  /// (tokenizer, prompt_ids, check_ids, piece, text_behind, end_tokens, ChatFormat). Errors: UsageError for options out of range,
  /// and for a cache that holds no page for each layer.
  Scheduler(Engine& engine, SchedulerOptions options);
  /// Cancels what is left and waits for its thread.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  using Ticket = uint64_t;  // never 0

  /// Errors, at once and in the caller's thread: as TokenSequence; InputError for a prompt longer than positions(); UsageError
  /// for negative counts, and as check_goes_back with a drafter; QueueFull; Draining.
  Ticket submit(Work work, std::shared_ptr<Sink> sink);

  /// Returns at once; ended(cancelled) follows, unless the stream has ended. Any number is fine.
  void cancel(Ticket ticket);
  /// The same for every stream there is, running or waiting.
  void cancel_all();

  /// Runs `job` on the engine, no other job beside it; its exception goes to the future. Streams have their steps between two
  /// ops of the job (Context::call_between), and where they run they have three times the time that jobs take. So a job may not
  /// change weights, and has to leave the engine as it found it.
  /// goes_on: of a request of which a job has run. It is taken while the scheduler drains, and by a full queue.
  /// Errors: QueueFull, Draining. A job that was not begun when the scheduler ends fails with Draining.
  std::future<void> run(std::function<void(Engine&)> job, std::string owner, bool goes_on = false);

  /// The same for a job in parts: one runs between every two steps, until part() gives false. No other job runs meanwhile, so
  /// what parts keep from one to the next is there once.
  std::future<void> run_in_parts(std::function<bool(Engine&)> part, std::string owner, bool goes_on = false);

  /// The same for parts that save or restore kept sequences.
  std::future<void> run_on_kept(std::function<bool(const KeptSequences&)> part, std::string owner);

  /// Takes no new work from now on.
  void drain();
  /// Nothing runs and nothing waits.
  bool idle() const;

  /// Positions that a sequence may have: prompt and new tokens, but for the last of them.
  int64_t positions() const;

  SchedulerStats stats() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace vitrine
