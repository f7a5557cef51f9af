#pragma once
// What a scheduler did and does, for those who watch it.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vitrine {

/// Counts by upper bounds, as Prometheus has them: counts[i] values were <= bounds[i] and above the bound before; the last count
/// is of those above all bounds.
struct Histogram {
  explicit Histogram(std::vector<double> upper) : bounds(std::move(upper)), counts(bounds.size() + 1) {}
  std::vector<double> bounds;
  std::vector<uint64_t> counts;  // [bounds + 1], not cumulative
  uint64_t count = 0;
  double sum = 0;
  void add(double value);
};

/// A stream that runs now.
struct StreamStats {
  uint64_t ticket = 0;
  std::string owner;
  int64_t prompt_tokens = 0, cached_tokens = 0;  // of the prompt; those found in the prefix cache
  int64_t read_tokens = 0;                       // prompt tokens that the model has seen
  int64_t new_tokens = 0, most_tokens = 0;       // made so far; at most
  double seconds = 0;                            // since it was submitted
};

struct SchedulerStats {
  // Now
  int64_t running = 0;  // streams, those among them that read their prompt included
  int64_t reading = 0;  // streams that read their prompt
  int64_t waiting = 0;  // streams and jobs in the queue
  bool draining = false;
  double busy_seconds_now = 0;  // since the running step or job began; 0: none runs. Long: the engine is stuck
  std::vector<StreamStats> streams;
  // Since the start
  uint64_t submitted = 0;                                       // streams that entered the queue
  uint64_t refused = 0;                                         // streams and jobs that found it full
  uint64_t stopped = 0, length = 0, cancelled = 0, failed = 0;  // streams by their end
  uint64_t jobs = 0;                                            // that were run; of one in parts each counts
  uint64_t preempted = 0;                                       // times a stream gave its cache back
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0;  // of prompts that were read, those from the prefix cache included
  uint64_t cached_tokens = 0;  // of prompts, found in the prefix cache
  uint64_t new_tokens = 0;
  uint64_t drafted_tokens = 0, accepted_tokens = 0, drafts = 0;  // drafts: steps of streams that had one
  int64_t longest_stream = 0;                                    // tokens of the longest prompt and text
  double prompt_seconds = 0, decode_seconds = 0;                 // of steps that read prompts, and of the others
  // The cache of keys and values
  size_t cache_bytes = 0;                       // in use: by running streams and kept prefixes
  size_t cache_bytes_most = 0;                  // that may be in use
  int64_t prefixes = 0;                         // sequences kept in the prefix cache
  int64_t prefix_tokens = 0;                    // in its tree: shared beginnings count once
  uint64_t prefix_hits = 0, prefix_misses = 0;  // prompts that found something to go on from, and that did not
  uint64_t prefix_evictions = 0;
  // Distributions
  Histogram queue_seconds{{0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}};
  Histogram first_token_seconds{{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}};  // since submit()
  Histogram between_tokens_seconds{{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5}};
  Histogram stream_seconds{{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}};  // from submit() to the end
  Histogram step_seconds{{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5}};
  Histogram step_streams{{1, 2, 4, 8, 16, 32, 64, 128, 256}};
  Histogram step_rows{{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}};
};

}  // namespace vitrine
