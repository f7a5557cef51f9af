#pragma once
// Models with different vocabularies, merged: the tokenizer of the result, and for each of its tokens the row of every model's
// embedding. The rules are mergekit's (docs/merge.md, "Tokenizers").
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "merge/recipe.h"
#include "model/export.h"

namespace vitrine {

/// A model whose vocabulary takes part.
struct TokenizerInput {
  ModelReference model;
  Companions files;        // its tokenizer's files by name: "tokenizer.json", "tokenizer_config.json", …
  int64_t vocab_size = 0;  // rows of its embedding, padding included
};

/// Where the rows of the embedding and of the head come from. Inputs are indices into the inputs that it was made from.
struct TokenPlan {
  std::vector<std::string> tokens;  // of the result, by id; "" for an id that no token has
  int64_t rows = 0;                 // with padding
  /// own[input][id]: the row of that input's matrix, or -1: defaults[id] instead.
  std::vector<std::vector<int64_t>> own;
  /// The mean of these rows {input, row}; empty: zeros. Read only where own is -1.
  std::vector<std::vector<std::pair<int, int64_t>>> defaults;
  /// Files of the result's tokenizer, by name.
  Companions files;
  /// For the reader: how many tokens each input has, lacks, and adds to the base's; rows that are left out; tokens whose row is
  /// averaged, zero or set by the recipe (all that the recipe names, and the first few of the others).
  std::vector<std::string> report;
};

/// Inputs: in the order of the recipe. `base`: which of them is the base model; without one the first gives its tokenizer, but
/// its rows are not preferred to those of the others. `other`: the model whose tokenizer the recipe names, if it is none of the
/// inputs; it gives no rows, and its own vocab_size is not looked at but to find tokens that only its configuration names.
/// Rows from tokens.size() on are the mean of an input's rows of all tokens, its own and the defaults.
/// Errors: FileError for a tokenizer that cannot be read or is of a kind that cannot be shortened, naming what to do; UsageError
/// for a token rule that names a token or model which is not there.
TokenPlan plan_tokens(const TokenizerRecipe& recipe, const std::vector<TokenizerInput>& inputs, std::optional<size_t> base,
                      const TokenizerInput* other = nullptr);

}  // namespace vitrine
