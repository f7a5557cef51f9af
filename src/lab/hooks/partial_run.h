#pragma once
// A run that does no more than is asked for: it ends behind the last hook that somebody wants, begins in the middle with a given
// residual stream, or goes on behind cached keys and values.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ops/recorder.h"
#include "ops/step.h"
#include "runtime/engine.h"

namespace vitrine {

/// Sequences without hook functions run in groups of about this many rows, so that memory stays that of one group.
inline constexpr int64_t kRowsTogether = 1024;

struct PartialRun {
  std::vector<std::string> hooks = {};  // requests as HookQuery describes them, to keep; slices are of each sequence's own length
  Listener* edits = nullptr;            // sees each hook first, of every sequence; what it returns flows on and is what is kept
  std::vector<std::string> edited = {};  // the hooks, in full, that `edits` waits for: the run does not end before them, and all
                                         // sequences are one step
  bool refuse_nan = true;                // NaN or infinity in what the run ends with is an error; false: it is shown
  bool losses = false;                   // score each token given those before it
  int64_t start_layer = 0;               // the first block that runs
  std::span<const float> stream = {};    // [all tokens, d_model]: what enters it, if it is not computed from the tokens
  CacheSequence* behind = nullptr;       // the tokens of the one sequence follow these positions, which then hold them too
  std::function<void(const Step&)> before_step = {};  // told of every step that `edits` will hear
  size_t memory = 0;                                  // bytes the values may take; 0: what the system has left
};

/// What was kept: values as BatchRecorder describes them, in the order of the run.
struct PartialResult {
  std::vector<std::string> order;
  std::map<std::string, Recorder::Value, std::less<>> values;
  std::vector<float> losses;  // -log p of ids[1 …] of every sequence in turn, in nats
};

/// Runs the sequences, which do not see each other, and keeps the values at hooks. Blocks behind the last hook that is wanted are
/// left out, as is the head. Losses are scored in chunks of the head: no table of logits is made for them.
///
/// Errors: as Engine::check_ids, plan_captures and require_memory, with the number of a sequence among several; InputError for a
/// hook before start_layer, a start outside the layers or in a family whose later layers read the keys of earlier ones, and for a
/// stream of another size; RunError naming layer, hook and token of a NaN or infinity.
PartialResult run_partly(Engine& engine, std::span<const std::vector<int32_t>> sequences, const PartialRun& request);

}  // namespace vitrine
