#pragma once
// GGUF vocabularies of kind "gemma4": BPE whose merges have ranks, over text with "▁" for each space and "<0xE2>" for bytes that
// no piece spells. Gemma 4's tokenizer.json holds the same.
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace vitrine {

/// Reads a checked vocabulary. Errors: FileError.
std::shared_ptr<const Tokenizer> spaced_bpe(const VocabularySpec& spec);
/// Its tokenizer.json.
std::string spaced_bpe_json(const VocabularySpec& spec);

}  // namespace vitrine
