#pragma once
// What a GGUF vocabulary means, for its tokenizer and for the files that are made of it.
#include <string>
#include <vector>

#include "base/json.h"
#include "tokenizer/sentencepiece_spec.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {

/// How tokenizer.ggml.pre cuts words.
struct PreTokenization {
  std::vector<std::string> names;
  std::vector<std::string> patterns;  // applied one after the other, matches kept apart
  bool ignore_merges = false, add_bos = false;
};
/// Errors: FileError listing the names that are known.
const PreTokenization& find_pre_tokenization(const VocabularySpec& spec);

/// The name of the way to cut words by these patterns, one after the other; of several, one that treats words that are pieces as
/// `ignore_merges` says. Errors: FileError naming `path` and the patterns if GGUF has no name for it.
std::string name_of_cuts(const std::vector<std::string>& patterns, bool ignore_merges, const std::string& path);

/// Errors: FileError for a number that is no type.
PieceType piece_type(const VocabularySpec& spec, size_t id);

/// Of a vocabulary of kind "gemma4": what tokenizer.json says of its spaces.
Json whole_text_normalizer();
Json whole_text_decoder();

/// A vocabulary of kind "llama", checked, in the words of a SentencePiece model. Errors: FileError.
SentencePieceSpec sentencepiece_of(VocabularySpec spec);

}  // namespace vitrine
