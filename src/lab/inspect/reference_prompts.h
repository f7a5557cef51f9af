#pragma once
// The tokens that reference numbers are for, in each of the forms that files give them.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/stored_tensor.h"

namespace vitrine {

/// A sequence, or a padded batch of them with the mask that says which positions are real.
struct ReferencePrompt {
  std::vector<std::vector<int32_t>> ids, mask;  // [sequence][position]; no mask: all are real
};
using ReferencePrompts = std::map<std::string, ReferencePrompt>;  // by the prompt's name

// All errors are FileErrors naming the file, the prompt and what was expected.

/// prompts.json: {"<prompt>": {"input_ids": …, "attention_mask": …} or ids, …}, or the same under "prompts".
ReferencePrompts read_prompts_json(const std::string& path);

/// golden.json: a list of prompts with "ids"; tensors call them by their place in it.
ReferencePrompts read_golden_json(const std::string& path);

/// Adds an integer tensor [position] or [sequence, position] ("tokens", "input_ids", "tokens#1" with `sequence` 1) to the
/// prompt of that name; false if it is no such tensor.
bool read_tokens_tensor(const StoredTensor& t, const std::string& prompt, std::optional<size_t> sequence,
                        ReferencePrompts& prompts);

/// "2,651;2,1175", as trace writes it into a file's metadata.
ReferencePrompt parse_tokens_text(const std::string& text, const std::string& file);

}  // namespace vitrine
