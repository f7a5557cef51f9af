#pragma once
// From what a recipe says to edits of hooks, for one model and one prompt: parts of the model by name, and the values to put
// there, which other runs give.
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generate/engine.h"
#include "inspect/hooks.h"
#include "inspect/intervene.h"
#include "inspect/intervene_recipe.h"

namespace vitrine {

/// The prompts of a recipe as ids, and how much memory kept values may take (0: what the system has left).
struct RecipePrompts {
  std::vector<int32_t> clean, corrupt;  // corrupt empty: none
  bool run_corrupt = false;
  size_t memory = 0;

  const std::vector<int32_t>& run() const { return run_corrupt ? corrupt : clean; }
  const std::vector<int32_t>& other() const { return run_corrupt ? clean : corrupt; }
};

/// Errors: InputError as Engine::check_ids and for an empty prompt, beginning with the place in the recipe.
std::vector<int32_t> ids_of(const Engine& engine, const PromptSpec& prompt);

/// The id of a token that is given as an id, as a text that is exactly one token, or as a piece of the vocabulary.
/// Errors: InputError naming the tokens of a text that is several.
int32_t id_of(const Engine& engine, const TokenSpec& token);

/// `position` of a sequence of `rows` tokens, counted from the end if negative. Errors: InputError.
int64_t position_of(int64_t position, int64_t rows, const std::string& where);

/// Indices that "3", "-1", "1:4", "*" mean among `count` things called `what` ("layers"), rising, each once.
/// Errors: InputError beginning with `where`.
std::vector<int64_t> indices_of(const std::vector<std::string>& texts, int64_t count, const char* what, const std::string& where);

/// Heads as "3.7" (LAYER.HEAD; either may be * or a range). Returns pairs by layer, then head.
struct HeadPlace {
  int64_t layer, head;
  auto operator<=>(const HeadPlace&) const = default;
};
std::vector<HeadPlace> heads_of(const std::vector<std::string>& texts, const ModelShape& shape, const std::string& where);

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

}  // namespace vitrine
