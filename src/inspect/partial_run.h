#pragma once
// A run that does no more than is asked for: it ends behind the last hook that somebody wants, begins in the middle with a given
// residual stream, or goes on behind cached keys and values.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "ops/recorder.h"

namespace vitrine {

struct PartialRun {
  std::vector<std::string> hooks = {};   // requests as HookQuery describes them, to keep
  Listener* edits = nullptr;             // sees each hook first; what it returns flows on and is what is kept
  std::vector<std::string> edited = {};  // the hooks, in full, that `edits` waits for: the run does not end before them
  bool refuse_nan = true;                // NaN or infinity in what the run ends with is an error; false: it is shown
  int64_t start_layer = 0;               // the first block that runs
  std::span<const float> stream = {};    // [tokens, d_model]: what enters it, if it is not computed from the tokens
  CacheSequence* behind = nullptr;       // the tokens follow these positions, which then hold them too
  size_t memory = 0;                     // bytes the values may take; 0: what the system has left
};

/// Runs `ids` and keeps the values at hooks. Blocks behind the last hook that is wanted are left out, as is the head.
///
/// Errors: as Engine::check_ids, plan_captures and require_memory; InputError for a hook before start_layer, a start outside the
/// layers or in a family whose later layers read the keys of earlier ones, and for a stream of another size; RunError naming
/// layer, hook and token of a NaN or infinity.
Recorder run_partly(Engine& engine, std::span<const int32_t> ids, const PartialRun& request);

}  // namespace vitrine
