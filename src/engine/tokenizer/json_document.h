#pragma once
// The parts of a tokenizer.json before anything is made of them.
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/config.h"
#include "tokenizer/model.h"

namespace vitrine {

struct TokenizerDocument {
  Json json;  // everything but model.vocab and model.merges
  ModelText model;
};

/// The vocabulary and the merges are most of the file and are left to be read straight from `text`, which must stay valid; the
/// rest becomes a tree. Errors: FileError.
TokenizerDocument split_tokenizer_json(std::string_view text, const std::string& path);

/// The added tokens that the file holds, and after them those that tokenizer_config.json or added_tokens.json declares and the
/// file lacks. Errors: FileError.
std::vector<AddedToken> added_tokens_of(const TokenizerDocument& document, const std::string& path, const Vocabulary& vocabulary,
                                        const TokenizerConfig& config);

}  // namespace vitrine
