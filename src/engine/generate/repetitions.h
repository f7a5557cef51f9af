#pragma once
// DRY ("don't repeat yourself"): penalties for tokens that would continue a repetition, as llama.cpp's sampler of that name.
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine.h"
#include "tokenizer/tokenizer.h"
#include "vitrine/sampling.h"

namespace vitrine {

/// Token sequences that end repetitions: by their first token, what may follow it.
using SequenceBreakers = std::map<int32_t, std::vector<std::vector<int32_t>>>;

/// For each of `texts`: the tokens that contain it, and those that end with its beginning, with the tokens of the rest. A text
/// counts up to 40 bytes, a rest up to 20 tokens. Takes a pass over the vocabulary.
SequenceBreakers sequence_breakers(const Tokenizer& tokenizer, const std::vector<std::string>& texts);
/// Those of the options' texts, for all texts that are made with these options; null where DRY is off or there is no tokenizer.
std::shared_ptr<const SequenceBreakers> breakers_of(const Engine& engine, const SamplingOptions& options);

/// With x = the last dry_penalty_last_n tokens of prompt and generated, after the last breaker: for every token t that follows an
/// earlier occurrence of the last n >= dry_allowed_length tokens of x, for the largest n:
/// {t, dry_multiplier * dry_base^(n - dry_allowed_length)}. Tokens that are breakers by themselves have no penalty. Takes time in
/// proportion to the tokens.
std::vector<std::pair<int32_t, float>> repetition_penalties(std::span<const int32_t> prompt, std::span<const int32_t> generated,
                                                            const SamplingOptions& options, const SequenceBreakers& breakers);

}  // namespace vitrine
