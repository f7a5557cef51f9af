#pragma once
// The tokenizer files of a Hugging Face directory as a GGUF vocabulary.
#include <string>

#include "tokenizer/tokenizer.h"

namespace vitrine {

/// What tokenizer.ggml.* says of a folder's tokenizer: byte-level BPE (tokenizer.json, or vocab.json and merges.txt) becomes kind
/// "gpt2", SentencePiece's BPE (tokenizer.model, or a tokenizer.json made of one) kind "llama". tokenizer_from_vocabulary() gives
/// any text the ids that load_tokenizer(folder) gives it, but for control tokens spelled out in it (Special) and what GGUF has no
/// words for: a normalizer to NFC, and white space that an added token takes along.
/// Errors: FileError naming what a GGUF vocabulary cannot say: unigram and WordPiece models, normalizers, a way to cut words that
/// has no name there.
VocabularySpec vocabulary_of_folder(const std::string& folder);

/// Makes the vocabulary as long as the embedding: ids without a piece get "[PAD<id>]" of type unused, as llama.cpp's converter
/// names them, and pieces that have no row are left out.
void fit_vocabulary(VocabularySpec& spec, int64_t rows);

}  // namespace vitrine
