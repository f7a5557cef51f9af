#include "runtime/token_json.h"

#include <vector>

namespace vitrine {

nlohmann::ordered_json piece_json(const Engine& engine, int32_t id) {
  const std::optional<std::string> piece = engine.piece(id);
  return piece ? nlohmann::ordered_json(*piece) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json tokens_json(const Engine& engine, std::span<const int32_t> ids) {
  nlohmann::ordered_json json = {{"tokens", std::vector<int32_t>(ids.begin(), ids.end())},
                                 {"pieces", nlohmann::ordered_json::array()}};
  for (const int32_t id : ids) json["pieces"].push_back(piece_json(engine, id));
  return json;
}

}  // namespace vitrine
