#pragma once
// The vocabulary of a model that takes part in a merge, and its tokenizer's files with other tokens.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "merge/token_plan.h"
#include "tokenizer/json_document.h"

namespace vitrine {

struct InputVocabulary {
  enum class Form : uint8_t { json, sentencepiece, two_files };  // tokenizer.json, tokenizer.model, vocab.json and merges.txt
  Form form = Form::json;
  std::string folder, path;          // for messages: of the model, of the file with the vocabulary
  TokenizerDocument document;        // of a tokenizer.json; its text is the input's
  Vocabulary pieces;                 // the file's and the added ones
  std::vector<AddedToken> added;     // by id: found in a text before all others
  std::vector<AddedToken> declared;  // of these, those that only the files beside a tokenizer.model or vocab.json hold

  /// The id of a token that has a row among the first `rows`; -1.
  int32_t find(std::string_view token, int64_t rows) const {
    const int32_t id = pieces.find(token);
    return id < rows ? id : -1;
  }
};

/// Reads the files; nothing if there are none of a tokenizer. The input must outlive the result. As in transformers, special
/// tokens that only the configuration names stand behind the vocabulary, if its embedding has rows for them.
/// Errors: FileError.
std::optional<InputVocabulary> read_input_vocabulary(const TokenizerInput& input);

/// The files of a tokenizer without its tokens from id `end` on, and with `fresh`: added tokens of new ids, or pieces of the
/// vocabulary that become added tokens. If nothing changes, the files as they are; otherwise without those that would contradict
/// tokenizer.json.
/// Errors: FileError for a vocabulary that cannot be shortened.
Companions changed_tokenizer(const Companions& files, const InputVocabulary& source, int64_t end,
                             std::span<const AddedToken> fresh);

}  // namespace vitrine
