// POST /v1/lens, /v1/heads, /v1/attribute: what a prediction is made of.
#include <cmath>

#include "base/error.h"
#include "hooks/listening.h"
#include "inspect/attribution.h"
#include "inspect/parts.h"
#include "intervene/plan.h"
#include "serve/endpoints.h"
#include "serve/inside.h"
#include "serve/lora.h"

namespace vitrine::serve {
namespace {

constexpr int64_t kMostTop = 100;
constexpr size_t kMostReadings = 100'000;  // points times positions times tokens of a lens

Field top_field(const char* what) { return {"top", type::integer, what, Use::honored, 1, static_cast<double>(kMostTop)}; }

// A token as a field: an id, a text that is one token, or a piece.
std::optional<int32_t> token_field(const Fields& fields, const std::string& name, const Engine& engine) {
  const OrderedJson* value = fields.find(name);
  if (value == nullptr) return {};
  TokenSpec token;
  token.where = "\"" + name + "\"";
  if (value->is_string()) {
    token.text = value->get<std::string>();
  } else {
    const auto id = value->get<int64_t>();
    if (id < 0 || id >= engine.shape().vocab_size)
      throw invalid(name, "\"" + name + "\" is " + std::to_string(id) + "; the vocabulary has the ids 0 to " +
                              std::to_string(engine.shape().vocab_size - 1));
    return static_cast<int32_t>(id);
  }
  try {
    return id_of(engine, token);
  } catch (const InputError& error) {
    throw invalid(name, error.what());
  }
}

// As docs/intervene.md counts them: negative ones from the end.
std::vector<int64_t> positions_field(const std::vector<int64_t>& given, size_t tokens, const std::string& field) {
  std::vector<int64_t> positions;
  for (const int64_t position : given) {
    const int64_t at = position < 0 ? position + static_cast<int64_t>(tokens) : position;
    if (at < 0 || at >= static_cast<int64_t>(tokens))
      throw invalid(field, "\"" + field + "\" names the position " + std::to_string(position) + "; the prompt has " +
                               std::to_string(tokens) + " tokens");
    positions.push_back(at);
  }
  return positions;
}

}  // namespace

const std::vector<Field>& lens_fields() {
  static const std::vector<Field> table =
      joined({inside_prompt_fields(),
              lora_fields(),
              {{"positions", type::integers, "The positions to read; negative ones count from the end. Default: all."},
               top_field("Number of most likely tokens at each point. Default: 5."),
               Field::refused("edits", "the lens shows the unedited model; /v1/inspect takes edits")}});
  return table;
}

void lens(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, lens_fields(), service.options().strict_fields);
  const InsidePrompt prompt = read_prompt(fields, service);
  const std::vector<int64_t> positions = positions_field(fields.integers("positions"), prompt.ids.size(), "positions");
  const int64_t top = fields.integer("top").value_or(5);
  const size_t readings =
      (positions.empty() ? prompt.ids.size() : positions.size()) * static_cast<size_t>(service.engine().shape().n_layers + 1);
  if (readings * static_cast<size_t>(top) > kMostReadings)
    throw invalid("positions", "the answer would hold " + std::to_string(readings * static_cast<size_t>(top)) +
                                   " tokens, and may hold " + std::to_string(kMostReadings) + "; ask for fewer positions");
  const ScaledAdapters adapters = read_adapters(fields, service);
  InsideRun run(service, exchange, adapters);
  LogitLens found;
  run([&](Engine& engine) { found = logit_lens(engine, prompt.ids, positions, top); });
  OrderedJson json = tokens_json(service.engine(), prompt.ids);
  json["layers"] = OrderedJson::array();
  for (size_t point = 0; point < found.points.size(); ++point) {
    OrderedJson rows = OrderedJson::array();
    for (size_t i = 0; i < found.positions.size(); ++i) {
      rows.push_back({{"position", found.positions[i]}});
      rows.back().update(json_of(found.at(point, i), speller_of(service.engine())));
    }
    json["layers"].push_back({{"name", found.points[point]}, {"positions", std::move(rows)}});
  }
  json["command"] = command_line(service, {"picture", "logit-lens", "--json"}, adapters, prompt.ids);
  add_ignored(fields, json);
  exchange->respond(json_response(json));
}

const std::vector<Field>& heads_fields() {
  static const std::vector<Field> table = joined({inside_prompt_fields(),
                                                  lora_fields(),
                                                  {{"token", type::integer | type::text,
                                                    "The token whose logit is explained: an id, or a text that is one token. "
                                                    "Default: the most likely."},
                                                   {"against", type::integer | type::text, "Subtract the value of this token."},
                                                   {"position", type::integer, "The position. Default: -1, the last."}}});
  return table;
}

void heads(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, heads_fields(), service.options().strict_fields);
  const InsidePrompt prompt = read_prompt(fields, service);
  const std::optional<int32_t> token = token_field(fields, "token", service.engine());
  const std::optional<int32_t> against = token_field(fields, "against", service.engine());
  if (against && !token) throw invalid("against", "\"against\" needs \"token\", the token that is compared with it");
  const std::vector<int64_t> position = positions_field({fields.integer("position").value_or(-1)}, prompt.ids.size(), "position");
  std::vector<int32_t> tokens;
  if (token) tokens.push_back(*token);
  if (against) tokens.push_back(*against);
  const ScaledAdapters adapters = read_adapters(fields, service);
  InsideRun run(service, exchange, adapters);
  LogitAttribution found;
  run([&](Engine& engine) { found = attribute_logits(engine, prompt.ids, tokens, position); });
  const LogitAttribution::Logit& first = found.logits.front();
  const auto less = [&](auto value) { return value(first) - (against ? value(found.logits[1]) : 0.0); };
  const ModelShape shape = service.engine().shape();
  OrderedJson layers = OrderedJson::array();
  for (int64_t layer = 0; layer < shape.n_layers; ++layer)
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
    if (part.kind == StreamPart::Kind::head)
      layer["heads"].push_back(value);
    else
      layer[part.kind == StreamPart::Kind::mlp ? "mlp" : "other"] =
          layer[part.kind == StreamPart::Kind::mlp ? "mlp" : "other"].get<double>() + value;
  }
  OrderedJson json = tokens_json(service.engine(), prompt.ids);
  const Speller piece = speller_of(service.engine());
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
    json["command"] = command_line(
        service, {"picture", "logit-attribution", "--position", std::to_string(first.position), "--json"}, adapters, prompt.ids);
  add_ignored(fields, json);
  exchange->respond(json_response(json));
}

const std::vector<Field>& attribute_fields() {
  static const std::vector<Field> table =
      joined({inside_prompt_fields(),
              lora_fields(),
              {{"token", type::integer | type::text,
                "The token whose log-probability is explained: an id, or a text that is one token. Default: the most likely."},
               {"against", type::integer | type::text, "Subtract the value of this token."},
               {"steps", type::integer, "Points of integrated gradients; 0: skip them. Default: 64.", Use::honored, 0, 256},
               {"baseline", type::text, "mean (the default) or zero: where integrated gradients start."}}});
  return table;
}

void attribute(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, attribute_fields(), service.options().strict_fields);
  const InsidePrompt prompt = read_prompt(fields, service);
  AttributionOptions options;
  options.token = token_field(fields, "token", service.engine());
  options.against = token_field(fields, "against", service.engine());
  options.steps = fields.integer("steps").value_or(64);
  const std::string baseline = fields.text("baseline").value_or("mean");
  if (baseline != "mean" && baseline != "zero")
    throw invalid("baseline", "\"baseline\" is \"" + baseline + "\"; expected mean or zero");
  options.baseline = baseline == "mean" ? Baseline::mean : Baseline::zero;
  const ScaledAdapters adapters = read_adapters(fields, service);
  InsideRun run(service, exchange, adapters);
  std::optional<AttributionRuns> runs;
  do {  // one at a time, so that streams get their steps in between
    run([&](Engine& engine) {
      if (!runs) runs.emplace(engine, prompt.ids, options);
      runs->next();
    });
  } while (!runs->done());
  const Attribution found = std::move(*runs).take();
  OrderedJson json = tokens_json(service.engine(), prompt.ids);
  json.update(json_of(found, speller_of(service.engine())));
  std::vector<std::string> words{"attribute", "--token", std::to_string(found.token)};
  if (options.against) words.insert(words.end(), {"--against", std::to_string(*options.against)});
  words.insert(words.end(), {"--steps", std::to_string(options.steps), "--baseline", baseline, "--json"});
  json["command"] = command_line(service, words, adapters, prompt.ids);
  add_ignored(fields, json);
  exchange->respond(json_response(json));
}

}  // namespace vitrine::serve
