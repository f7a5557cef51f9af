#pragma once
// tokenizer_config.json: what stands beside a tokenizer file and says how it is used.
#include <optional>
#include <string>
#include <vector>

namespace vitrine {

struct TokenizerConfig {
  std::string path;  // empty: there is no such file
  std::optional<bool> add_bos, add_eos;
  std::optional<std::string> bos, eos, unknown, padding;
  std::vector<std::string> special;  // contents of added_tokens_decoder that are marked special
};

/// Reads `folder`/tokenizer_config.json if it exists. Errors: FileError for a value of the wrong type.
TokenizerConfig read_tokenizer_config(const std::string& folder);

}  // namespace vitrine
