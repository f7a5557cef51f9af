#pragma once
// Tokens as answers and --json tell them.
#include <cstdint>
#include <span>

#include "base/json.h"
#include "runtime/engine.h"

namespace vitrine {

/// The piece of an id as the vocabulary spells it; null for an id without one.
nlohmann::ordered_json piece_json(const Engine& engine, int32_t id);
/// {"tokens": ids, "pieces": as the vocabulary spells them}
nlohmann::ordered_json tokens_json(const Engine& engine, std::span<const int32_t> ids);

}  // namespace vitrine
