#pragma once
// Several prompts that are continued together: a token of each goes through one step, so that the weights are read once for all.
#include <cstdint>
#include <span>
#include <vector>

#include "generate/token_sequence.h"

namespace vitrine {

/// Sequences that are decoded together at most; the others wait until one of them ends.
inline constexpr size_t kDecodedTogether = 64;

/// What generate() makes of each prompt with the same options, the seed among them, in the prompts' order. Products of several
/// rows may round otherwise than those of one; with Numerics::exact they do not, and every token is the same. Errors: as
/// generate; UsageError for a drafter, which follows one text.
std::vector<Generation> generate_together(Engine& engine, std::span<const std::vector<int32_t>> prompts,
                                          const GenerateOptions& options);

}  // namespace vitrine
