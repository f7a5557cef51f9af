#pragma once
// tokenizer_config.json, special_tokens_map.json and added_tokens.json: what stands beside a tokenizer file and says how it is
// used.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"

namespace vitrine {

struct TokenizerConfig {
  std::string path;  // empty: there is no such file
  std::optional<std::string> tokenizer_class;
  std::optional<bool> add_bos, add_eos;
  std::optional<bool> add_prefix_space;  // only for the classes that read it, GPT2Tokenizer and Qwen2Tokenizer
  bool splits_special = false;           // control tokens spelled out in a text are text to tokenizer.json, too
  std::optional<bool> legacy;  // true: a SentencePiece model's space is put in front of what follows an added token, too
  std::optional<std::string> bos, eos, unknown, padding, separator, classifier, mask;
  std::optional<bool> lower_case, space_ideographs, strip_accents;  // only for a vocab.txt
  bool no_bos = false, no_eos = false;                              // said to be null: there is none, whatever else suggests one
  std::vector<DeclaredToken> added;  // added_tokens_decoder; where there is none, added_tokens.json
  std::vector<std::string> named;    // all special tokens that have a role or are listed; some may be named more than once
};

/// Reads `folder`/tokenizer_config.json, special_tokens_map.json and, if `added_file`, added_tokens.json, as far as they exist.
/// Errors: FileError for a value of the wrong type.
TokenizerConfig read_tokenizer_config(const std::string& folder, bool added_file);
/// The same for the contents of these files, by name; `folder` stands before their names in errors.
TokenizerConfig parse_tokenizer_config(const std::map<std::string, std::string>& files, const std::string& folder,
                                       bool added_file);

/// The class by whose rules transformers cuts texts of `folder`, without "Fast" at its end: Qwen2Tokenizer where config.json says
/// that the model is a Qwen 2, else the configuration's, else GPT2Tokenizer for a GPT-2, RoFormerTokenizer for a RoFormer, else
/// "".
std::string class_that_cuts(const std::string& folder, const TokenizerConfig& config);

}  // namespace vitrine
