#pragma once
// Tokens as clients of the API read them: their text, their bytes, prompts given as ids.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "requests/shared.h"
#include "runtime/engine.h"

namespace vitrine::serve {

/// The bytes that a token adds within a text; those of a control token are its name ("<eos>"). A model may have rows without a
/// piece, and a model without a tokenizer has no pieces: "token_id:7".
std::string token_bytes(const Engine& engine, int32_t id);
/// The same as text: bytes that are not UTF-8 by themselves are written "bytes:\xe2\x80", as OpenAI does.
std::string token_text(const Engine& engine, int32_t id);
/// [226, 128]
OrderedJson bytes_json(const std::string& bytes);

/// Those of a list of ids and texts, of which the first may get BOS. Errors: as token_ids; RequestError for anything else in it.
std::vector<int32_t> mixed_ids(const Engine& engine, const OrderedJson& list, const std::string& field, Special special);

/// The text of a prompt's ids, control tokens by their names.
std::string prompt_text(const Engine& engine, std::span<const int32_t> ids);

/// Characters of UTF-8 text.
int64_t characters(std::string_view text);

}  // namespace vitrine::serve
