// heads: what each head and MLP adds to a logit.
#include "inspect/parts.h"
#include "requests/shared.h"

namespace vitrine {
namespace {

RequestAnswer heads_answer(const Host& host, Fields& fields) {
  const std::vector<int32_t> ids = read_prompt(host, fields).ids;
  const std::optional<int32_t> token = token_field(fields, "token", host.engine),
                               against = token_field(fields, "against", host.engine);
  if (against && !token) throw invalid("against", "\"against\" needs \"token\", the token that is compared with it");
  const std::vector<int64_t> position = positions_field({fields.integer("position").value_or(-1)}, ids.size(), "position");
  std::vector<int32_t> tokens;
  if (token) tokens.push_back(*token);
  if (against) tokens.push_back(*against);
  LogitAttribution found;
  host.run([&](Engine& engine) { found = attribute_logits(engine, ids, tokens, position); });
  const LogitAttribution::Logit& first = found.logits.front();
  const auto less = [&](auto value) { return value(first) - (against ? value(found.logits[1]) : 0.0); };
  OrderedJson layers = OrderedJson::array();
  for (int64_t layer = 0; layer < host.engine.shape().n_layers; ++layer)
    layers.push_back({{"layer", layer}, {"heads", OrderedJson::array()}, {"mlp", 0.0}, {"other", 0.0}});
  double embed = 0;
  for (size_t i = 0; i < found.parts.size(); ++i) {
    const StreamPart& part = found.parts[i];
    const double value = less([&](const LogitAttribution::Logit& logit) { return logit.parts[i]; });
    if (part.layer < 0) {
      embed += value;
      continue;
    }
    OrderedJson& layer = layers[static_cast<size_t>(part.layer)];
    if (part.kind == StreamPart::Kind::head) {
      layer["heads"].push_back(value);
    } else {
      OrderedJson& sum = layer[part.kind == StreamPart::Kind::mlp ? "mlp" : "other"];
      sum = sum.get<double>() + value;
    }
  }
  RequestAnswer answer{tokens_json(host.engine, ids)};
  OrderedJson& json = answer.json;
  const Speller piece = speller_of(host.engine);
  json.update(json_of(NamedToken{first.token}, piece));
  json["against"] = against ? json_of(NamedToken{*against}, piece) : OrderedJson(nullptr);
  json["position"] = first.position;
  json["layers"] = std::move(layers);
  json["embed"] = embed;
  json["bias"] = less([](const LogitAttribution::Logit& logit) { return logit.norm_bias + logit.head_bias; });
  json["rounding"] = less([](const LogitAttribution::Logit& logit) { return logit.rounding; });
  json["before_cap"] = less([](const LogitAttribution::Logit& logit) { return logit.before_cap; });
  json["logit"] = less([](const LogitAttribution::Logit& logit) { return logit.logit; });
  if (!token)  // the picture is of the most likely one
    answer.add_command(host, {"picture", "logit-attribution", "--position", std::to_string(first.position), "--json"}, ids);
  return answer;
}

}  // namespace

Request heads_request() {
  using namespace type;
  return {"heads", "What each head and MLP adds to a logit.",
          joined({prompt_fields(),
                  {{"token", integer | text,
                    "The token whose logit is explained: an id, or a text that is one token. Default: the most likely."},
                   {"against", integer | text, "Subtract the value of this token."},
                   {"position", integer, "The position. Default: -1, the last."}}}),
          heads_answer};
}

}  // namespace vitrine
