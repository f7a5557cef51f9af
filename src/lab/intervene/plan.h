#pragma once
// From what a recipe says to edits of hooks, for one model and one prompt: parts of the model by name, and the values to put
// there, which other runs give.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hooks/hooks.h"
#include "intervene/intervene.h"
#include "intervene/places.h"
#include "intervene/recipe.h"
#include "runtime/engine.h"

namespace vitrine {

/// The prompts of a recipe as ids, and how much memory kept values may take (0: what the system has left).
struct RecipePrompts {
  std::vector<int32_t> clean, corrupt;  // corrupt empty: none
  bool run_corrupt = false;
  size_t memory = 0;

  const std::vector<int32_t>& run() const { return run_corrupt ? corrupt : clean; }
  const std::vector<int32_t>& other() const { return run_corrupt ? clean : corrupt; }
};

/// Whole values of hooks in runs of the unedited model; those of the last call are kept, so that the cells of a grid that read
/// the same ones run the model once.
class SourceValues {
 public:
  explicit SourceValues(Engine& engine, size_t memory = 0) : engine_(engine), memory_(memory) {}
  /// Errors: as trace_to_memory. The result is valid until the next call.
  const Recorder& of(std::span<const int32_t> ids, const std::vector<Capture>& captures);

 private:
  Engine& engine_;
  size_t memory_;
  std::vector<int32_t> ids_;
  std::optional<Recorder> kept_;
};

/// One intervention as edits, in the order in which they are to be made, for a run of `prompts.run()`.
/// Values from other prompts come from the model as it is, without edits.
/// Errors: InputError, beginning with the place in the recipe, for parts that the model lacks, numbers that do not fit, prompts
/// of other lengths, and values that do not fit into memory.
std::vector<ValueEdit> plan_edits(Engine& engine, const Intervention& intervention, const RecipePrompts& prompts,
                                  SourceValues& values);

/// The interventions of a recipe, in their order, for a run of `ids`. Errors: as plan_edits.
std::unique_ptr<Interventions> planned(Engine& engine, const Recipe& recipe, const std::vector<int32_t>& ids);

}  // namespace vitrine
