#pragma once
// Tokens as answers and --json tell them.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_of.h"
#include "runtime/engine.h"

namespace vitrine {

/// How the engine's vocabulary spells ids; of a prompt given as ids no id has a piece. The engine must live as long.
Speller speller_of(const Engine& engine, bool from_text = true);
/// The piece of an id as the vocabulary spells it; null for an id without one.
nlohmann::ordered_json piece_json(const Engine& engine, int32_t id);
/// {"tokens": ids, "pieces": as the vocabulary spells them}
nlohmann::ordered_json tokens_json(const Engine& engine, std::span<const int32_t> ids);
/// The same behind "text". Of a prompt given as ids there is no text, and no pieces: both are null.
nlohmann::ordered_json prompt_json(const Engine& engine, std::span<const int32_t> ids, const std::optional<std::string>& text);

/// The answer to `score`; logprobs[i]: those of prompts[i][1..].
nlohmann::ordered_json scores_json(const Engine& engine, const std::vector<std::vector<int32_t>>& prompts,
                                   const std::vector<std::vector<float>>& logprobs);

}  // namespace vitrine
