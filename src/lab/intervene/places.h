#pragma once
// What a recipe names, in a model: prompts and tokens as ids, positions, layers and heads as numbers.
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "intervene/recipe.h"
#include "runtime/engine.h"

namespace vitrine {

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

/// Heads as "3.7" (LAYER.HEAD; either may be * or a range). Returns pairs by layer, then head. Of a range, layers without
/// attention are left out. Errors: InputError beginning with `where`.
struct HeadPlace {
  int64_t layer, head;
  auto operator<=>(const HeadPlace&) const = default;
};
std::vector<HeadPlace> heads_of(const std::vector<std::string>& texts, const Model& model, const std::string& where);

/// Whether a text may stand behind positions= in a request: an empty one would be every position, one with a comma more than
/// that.
bool may_be_slice(const std::string& text);

/// Whether a message begins with `where`, such as r.yaml:3: "interventions[0]", or with the place of a value inside it, which may
/// stand on another line.
bool names_place(std::string_view message, std::string_view where);

/// Runs f; what it refuses is reported at `where`.
template <class F>
auto reported(const std::string& where, F&& f) {
  try {
    return f();
  } catch (const InputError& error) {
    if (where.empty() || names_place(error.what(), where)) throw;
    throw InputError(where + ": " + error.what());
  }
}

}  // namespace vitrine
