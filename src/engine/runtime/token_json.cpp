#include "runtime/token_json.h"

#include <ranges>

namespace vitrine {

Speller speller_of(const Engine& engine, bool from_text) {
  return [&engine, from_text](int32_t id) { return from_text ? engine.piece(id) : std::nullopt; };
}

nlohmann::ordered_json piece_json(const Engine& engine, int32_t id) { return json_of(engine.piece(id)); }

nlohmann::ordered_json tokens_json(const Engine& engine, std::span<const int32_t> ids) {
  return {{"tokens", json_of(ids)}, {"pieces", json_of(ids | std::views::transform(speller_of(engine)))}};
}

nlohmann::ordered_json prompt_json(const Engine& engine, std::span<const int32_t> ids, const std::optional<std::string>& text) {
  nlohmann::ordered_json json = {{"text", json_of(text)}};
  json.update(tokens_json(engine, ids));
  if (!text) json["pieces"] = nullptr;
  return json;
}

}  // namespace vitrine
