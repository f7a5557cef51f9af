#include "runtime/token_json.h"

#include <cmath>
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

nlohmann::ordered_json scores_json(const Engine& engine, const std::vector<std::vector<int32_t>>& prompts,
                                   const std::vector<std::vector<float>>& logprobs) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (size_t i = 0; i < prompts.size(); ++i) {
    nlohmann::ordered_json json = tokens_json(engine, prompts[i]);
    json["logprobs"] = nlohmann::ordered_json::array({nullptr});
    double sum = 0;
    for (const float logprob : logprobs[i]) {
      json["logprobs"].push_back(json_of(logprob));
      sum += static_cast<double>(logprob);
    }
    const bool any = !logprobs[i].empty();
    const double nll = any ? -sum / static_cast<double>(logprobs[i].size()) : 0;
    json["nll"] = any ? json_of(nll) : nlohmann::ordered_json(nullptr);
    json["perplexity"] = any ? json_of(std::exp(nll)) : nlohmann::ordered_json(nullptr);
    results.push_back(std::move(json));
  }
  return {
      {"results", std::move(results)},
      {"definition", "nll: the mean of -log p of all tokens but the first, each given those before it; perplexity: exp(nll)"}};
}

}  // namespace vitrine
