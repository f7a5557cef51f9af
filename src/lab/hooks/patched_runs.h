#pragma once
// Runs of a prompt with one place of a hook changed at a time, as activation patching sweeps them.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine.h"
#include "vitrine/float_vector.h"

namespace vitrine {

/// What stands at one position of a hook instead: of one head, or of the whole row.
struct Patch {
  int64_t position = 0;
  int64_t head = -1;             // -1: the whole row
  std::span<const float> value;  // of scores and patterns, at the query `position` of `head`: one number a key
};

/// Each run is no longer than it must be: layers before the hook's and positions before the place, which no change reaches, are
/// those of the unchanged prompt. That runs once, and keeps its keys and values; many patches run as one step.
class PatchedRuns {
 public:
  /// Runs the prompt. Errors: as Engine::check_ids; RunError for NaN or infinity.
  PatchedRuns(Engine& engine, std::vector<int32_t> ids);

  /// Whether this model's runs of so many tokens can be cut like that at this hook: nothing is carried from row to row but keys
  /// and values, each layer has its own, and they are cached as they are. A window must not hide keys that a patched pattern may
  /// look at.
  static bool possible(const Engine& engine, std::string_view hook, int64_t length);

  int64_t length() const { return std::ssize(ids_); }

  /// The logits from each patch's position on, one patch behind the other: [sum of (length - position), vocab_size].
  /// hook: a name in full, of a layer. Errors: InputError for a hook or a place that is not there or not possible, ShapeError for
  /// a value of another size; RunError for NaN or infinity.
  FloatVector run(std::string_view hook, std::span<const Patch> patches);

 private:
  Engine& engine_;
  std::vector<int32_t> ids_;
  std::unique_ptr<KvCache> cache_;
  CacheSequence whole_;
  std::vector<FloatVector> streams_;  // [position, d_model] that enter each layer
};

}  // namespace vitrine
