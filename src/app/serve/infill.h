#pragma once
// Prompts whose text stands between two others, for models that were trained to fill in the middle.
#include <vector>

#include "requests/fields.h"
#include "tokenizer/tokenizer.h"

namespace vitrine::serve {

/// input_prefix, input_suffix, prompt and input_extra, as llama.cpp has them.
std::vector<Field> infill_prompt_fields();

/// BOS if the tokenizer adds it, then prefix and suffix behind their tokens, then the token of the middle and `prompt`, with
/// which the middle begins. Errors: ApiError 501 if the vocabulary has no such tokens.
std::vector<int32_t> infill_prompt(const Fields& fields, const Tokenizer& tokenizer);

}  // namespace vitrine::serve
