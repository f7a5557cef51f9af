// generate: a text. steer: the same without and with changes to the model.
#include "generate/generate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/shell_word.h"
#include "generate/sampling_options.h"
#include "intervene/recipe.h"
#include "ops/listening.h"
#include "requests/shared.h"

namespace vitrine {

std::vector<Field> sampling_number_fields() {
  std::vector<Field> fields;
  for (const SamplingOption& option : sampling_options())
    fields.push_back({option.name, option.is_whole() ? type::integer : type::number, std::string(option.help) + ".", Use::honored,
                      option.low, option.high});
  return fields;
}

std::vector<Field> drawn_fields() {
  return joined({sampling_number_fields(), {{"seed", type::integer, "Random seed. Default: 0.", Use::honored, 0, 9e15}}});
}

void read_sampling_numbers(const Fields& fields, SamplingOptions& sampling) {
  for (const SamplingOption& option : sampling_options()) {
    const auto value = fields.number(option.name);
    if (!value) continue;
    if (!option.includes_low() && *value == option.low)
      throw invalid(option.name,
                    "\"" + std::string(option.name) + "\" is " + json_text(*value) + "; expected " + option.expected);
    option.set(sampling, *value);
  }
}

SamplingOptions read_drawn(const Fields& fields) {
  SamplingOptions sampling;
  read_sampling_numbers(fields, sampling);
  sampling.seed = static_cast<uint64_t>(fields.integer("seed").value_or(0));
  return sampling;
}

std::optional<std::vector<std::string>> generate_words(const Engine& engine, const GenerateOptions& o) {
  if (o.constraint != nullptr || o.min_tokens > 0) return {};
  std::vector<std::string> words = {"generate", "--json", fmt::format("--max-tokens={}", o.max_tokens)};
  const SamplingOptions &s = o.sampling, usual;
  const auto add = [&](std::string flag, const std::string& value) {
    std::ranges::replace(flag, '_', '-');
    words.push_back("--" + flag + "=" + shell_word(value));
  };
  for (const SamplingOption& option : sampling_options())
    if (const auto value = option.get(s); value && value != option.get(usual)) add(option.name, option.json(s).dump());
  if (s.order != usual.order) add("samplers", sampling_order_text(s.order));
  for (const auto& [token, bias] : s.logit_bias) add("logit-bias", fmt::format("{}={}", token, bias));
  if (s.dry_multiplier != 0 && s.dry_sequence_breakers != usual.dry_sequence_breakers) {
    for (const std::string& breaker : s.dry_sequence_breakers) add("dry-sequence-breaker", breaker);
    if (s.dry_sequence_breakers.empty()) add("dry-sequence-breaker", "none");
  }
  add("seed", std::to_string(s.seed));
  for (const std::string& stop : o.stops) add("stop", stop);
  if (o.ignore_eos || o.eos.empty())
    words.emplace_back("--ignore-eos");
  else if (o.eos != engine.end_tokens())
    add("eos", fmt::format("{}", fmt::join(o.eos, ",")));
  const CacheTypes types = engine.decoding_types();
  words.insert(words.end(),
               {"--cache-type-k", std::string(name_of(types.keys)), "--cache-type-v", std::string(name_of(types.values))});
  return words;
}

namespace {

Field max_tokens_field(const char* about) { return {"max_tokens", type::integer, about, Use::honored, 1, 4096}; }

GenerateOptions read_generation(const Host& host, const Fields& fields, size_t prompt_tokens, int64_t usual_tokens) {
  GenerateOptions options;
  if (host.generation)
    options = host.generation(fields, prompt_tokens);
  else {
    options.sampling = read_drawn(fields);
    options.eos = host.engine.end_tokens();
  }
  options.max_tokens = fields.integer("max_tokens").value_or(usual_tokens);
  options.alone = fields.has("messages");
  return options;
}

// A token at a time.
OrderedJson continued(const Host& host, const std::vector<int32_t>& ids, const GenerateOptions& options, Interventions* edits) {
  std::optional<TokenLoop> loop;
  host.run([&](Engine& engine) { loop.emplace(engine, ids, options); });
  while (!loop->done())
    host.run([&](Engine& engine) {
      std::optional<Listening> listening;
      if (edits != nullptr) listening.emplace(engine.context(), *edits);
      loop->next();
    });
  const Generation made = std::move(*loop).take();
  return {{"text", made.text}, {"tokens", made.tokens}, {"logprobs", made.logprobs}, {"finish_reason", made.finish_reason}};
}

RequestAnswer generated(const Host& host, Fields& fields) {
  const std::vector<int32_t> ids = read_prompt(host, fields).ids;
  const GenerateOptions options = read_generation(host, fields, ids.size(), 16);
  std::unique_ptr<Interventions> edits;
  host.run([&](Engine& engine) { edits = planned_edits(engine, fields.find("edits"), ids); });
  return {continued(host, ids, options, edits.get())};
}

RequestAnswer steered(const Host& host, Fields& fields) {
  const std::vector<int32_t> ids = read_prompt(host, fields).ids;
  const OrderedJson* changes = fields.find("edits");
  if (changes->empty()) throw invalid("edits", "\"edits\" is empty; expected changes to the model");
  const GenerateOptions options = read_generation(host, fields, ids.size(), 40);
  std::unique_ptr<Interventions> edits;
  host.run([&](Engine& engine) { edits = planned_edits(engine, changes, ids); });
  RequestAnswer answer{tokens_json(host.engine, ids)};
  answer.json["before"] = continued(host, ids, options, nullptr);
  answer.json["after"] = continued(host, ids, options, edits.get());
  answer.json["seed"] = options.sampling.seed;
  const OrderedJson recipe = {{"prompt", {{"tokens", ids}}}, {"interventions", *changes}};
  answer.json["yaml"] = to_yaml(checked_recipe(recipe, "edits", host.engine.shape().n_heads));
  std::optional<std::vector<std::string>> words = generate_words(host.engine, options);
  if (words) {
    words->insert(words->end(), {"--edits", "recipe.yaml"});
    answer.add_command(host, *words, ids);
  }
  return answer;
}

}  // namespace

Request generate_request() {
  return {"generate", "A continuation: `text`, `tokens`, `logprobs`, `finish_reason`.",
          joined({prompt_fields(), {edits_field()}, drawn_fields(), {max_tokens_field("Maximum new tokens. Default: 16.")}}),
          generated, true};
}

Request steer_request() {
  Field edits = edits_field();
  edits.required = true;
  return {"steer", "The same continuation without and with changes to the model.",
          joined({prompt_fields(), {edits, max_tokens_field("Maximum new tokens. Default: 40.")}, drawn_fields()}), steered,
          true};
}

}  // namespace vitrine
