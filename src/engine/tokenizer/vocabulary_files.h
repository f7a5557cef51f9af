#pragma once
// A GGUF vocabulary as the files of a Hugging Face directory.
#include <map>
#include <optional>
#include <string>

#include "tokenizer/tokenizer.h"

namespace vitrine {

/// Files by name: tokenizer.json for byte-level BPE, tokenizer.model for SentencePiece, and tokenizer_config.json with the
/// special tokens and the chat template. Any text has the same ids by them as by tokenizer_from_vocabulary(), but for control
/// tokens spelled out in it: tokenizer.json finds them by itself, GGUF where it is asked to (Special).
/// Errors: FileError naming `source` and the key, also for what the files cannot say: pieces that are not UTF-8 or empty, a BOS
/// or EOS that is not a control piece.
std::map<std::string, std::string> vocabulary_files(const VocabularySpec& spec, const std::optional<std::string>& chat_template);

}  // namespace vitrine
