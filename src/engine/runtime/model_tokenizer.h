#pragma once
// The tokenizer that belongs to a model, wherever its files keep it.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "model/export.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {

/// Whether a GGUF file has a vocabulary: its kind may be "none".
bool has_vocabulary(const GgufMetadata& metadata);

/// The vocabulary inside a GGUF file. Errors: FileError naming the key.
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufMetadata& metadata);

/// What stands beside a model's configuration and weights in a directory of its own: the files that stand beside them now; or
/// those that say what a GGUF file says of its vocabulary, chat template and ends of text. `opened` is as_huggingface(), if it is
/// a GGUF file. Errors: FileError for a vocabulary that has no such form.
Companions companions_of(const OpenedModel& opened);

/// tokenizer.* for the GGUF file of a model that is a Hugging Face directory: vocabulary, special tokens, chat template. A
/// directory without tokenizer gets kind "none". Errors: FileError for a tokenizer that GGUF has no words for.
GgufKeys vocabulary_keys(const OpenedModel& opened);

/// The tokenizer of `name`: a model (a directory, a .gguf file, an id in the local Hugging Face cache) or a bare tokenizer (a
/// folder or one file). Errors: FileError.
std::shared_ptr<const Tokenizer> open_tokenizer(std::string_view name);

/// A number for all that open_tokenizer(name) reads: its files, or a .gguf file's keys of the vocabulary. Two tokenizers with the
/// same pieces may cut texts in other ways.
uint64_t fingerprint_of_tokenizer(std::string_view name);

/// The token that stands for one that is to be filled in, "[MASK]": as tokenizer_config.json or special_tokens_map.json beside
/// the model names it, else "[MASK]" or "<mask>" if that is a control token.
std::optional<int32_t> mask_token(const OpenedModel& opened, const Tokenizer& tokenizer);
/// Where it stands among `ids`. Errors: InputError if it stands nowhere, or without a tokenizer (null).
std::vector<int64_t> masked_places(const OpenedModel& opened, const Tokenizer* tokenizer, std::span<const int32_t> ids);

/// The first id that both have and spell differently. One of the two may name further rows that no text uses, as "[PAD1]".
std::optional<int32_t> first_other_piece(const Tokenizer& a, const Tokenizer& b);

}  // namespace vitrine
