#include "generate/sampling_options.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/error.h"

namespace vitrine {
namespace {

constexpr std::pair<SamplingRule, const char*> kNames[] = {
    {SamplingRule::bias, "bias"},
    {SamplingRule::repetition, "repetition"},
    {SamplingRule::frequency, "frequency"},
    {SamplingRule::presence, "presence"},
    {SamplingRule::temperature, "temperature"},
    {SamplingRule::top_k, "top_k"},
    {SamplingRule::top_p, "top_p"},
    {SamplingRule::min_p, "min_p"},
    {SamplingRule::typical, "typical"},
};

const char* name_of(SamplingRule rule) { return kNames[static_cast<size_t>(rule)].second; }

std::string number(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

[[noreturn]] void refuse(const char* option, double value, const std::string& expected) {
  throw UsageError(std::string(option) + " is " + number(value) + "; expected " + expected);
}

// Whether the rule changes anything with these options.
bool acts(SamplingRule rule, const SamplingOptions& o) {
  switch (rule) {
    case SamplingRule::bias: return !o.logit_bias.empty();
    case SamplingRule::repetition: return o.repetition_penalty != 1;
    case SamplingRule::frequency: return o.frequency_penalty != 0;
    case SamplingRule::presence: return o.presence_penalty != 0;
    case SamplingRule::temperature: return o.temperature && *o.temperature != 1;
    case SamplingRule::top_k: return o.top_k && *o.top_k != 0;
    case SamplingRule::top_p: return o.top_p && *o.top_p < 1;
    case SamplingRule::min_p: return o.min_p.has_value();
    case SamplingRule::typical: return o.typical_p && *o.typical_p < 1;
  }
  return false;
}

Json value_of(SamplingRule rule, const SamplingOptions& o) {
  switch (rule) {
    case SamplingRule::bias: {
      Json biases = Json::object();
      for (const auto& [token, bias] : o.logit_bias) biases[std::to_string(token)] = std::isinf(bias) ? Json("-inf") : Json(bias);
      return biases;
    }
    case SamplingRule::repetition: return o.repetition_penalty;
    case SamplingRule::frequency: return o.frequency_penalty;
    case SamplingRule::presence: return o.presence_penalty;
    case SamplingRule::temperature: return *o.temperature;
    case SamplingRule::top_k: return *o.top_k;
    case SamplingRule::top_p: return *o.top_p;
    case SamplingRule::min_p: return *o.min_p;
    case SamplingRule::typical: return *o.typical_p;
  }
  return nullptr;
}

}  // namespace

bool SamplingOptions::draws() const {
  if (temperature && *temperature == 0) return false;
  return temperature || top_k || top_p || min_p || typical_p;
}

bool SamplingOptions::changes_scores() const {
  using enum SamplingRule;
  return acts(bias, *this) || acts(repetition, *this) || acts(frequency, *this) || acts(presence, *this);
}

std::string sampling_order_text(const std::vector<SamplingRule>& order) {
  std::string text;
  for (const SamplingRule rule : order) text.append(text.empty() ? "" : ",").append(name_of(rule));
  return text;
}

std::vector<SamplingRule> parse_sampling_order(std::string_view names) {
  std::vector<SamplingRule> order;
  while (!names.empty()) {
    const size_t comma = std::min(names.find(','), names.size());
    const std::string_view name = names.substr(0, comma);
    names.remove_prefix(std::min(comma + 1, names.size()));
    const auto known =
        std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& entry) { return name == entry.second; });
    if (known == std::end(kNames)) {
      std::string all;
      for (const auto& [rule, text] : kNames) all.append(all.empty() ? "" : ", ").append(text);
      throw UsageError("the sampler \"" + std::string(name) + "\" is unknown; known samplers: " + all);
    }
    if (std::find(order.begin(), order.end(), known->first) != order.end())
      throw UsageError("the sampler \"" + std::string(name) + "\" is named twice; name each at most once");
    order.push_back(known->first);
  }
  return order;
}

void check_sampling_options(const SamplingOptions& o, int64_t vocab_size) {
  // Each comparison is written so that NaN fails it.
  if (o.temperature && !(*o.temperature >= 0 && std::isfinite(*o.temperature)))
    refuse("temperature", *o.temperature, "a number above 0, or 0 for greedy");
  if (o.top_k && *o.top_k < 0) refuse("top_k", static_cast<double>(*o.top_k), "a number of tokens, or 0 for no limit");
  if (o.top_p && !(*o.top_p >= 0 && *o.top_p <= 1)) refuse("top_p", *o.top_p, "a probability from 0 to 1");
  if (o.min_p && !(*o.min_p >= 0 && *o.min_p <= 1)) refuse("min_p", *o.min_p, "a probability from 0 to 1");
  if (o.typical_p && !(*o.typical_p > 0 && *o.typical_p <= 1))
    refuse("typical_p", *o.typical_p, "a probability above 0 and up to 1");
  if (!(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty)))
    refuse("repetition_penalty", o.repetition_penalty, "a number above 0 (1 changes nothing)");
  if (!std::isfinite(o.frequency_penalty)) refuse("frequency_penalty", o.frequency_penalty, "a finite number");
  if (!std::isfinite(o.presence_penalty)) refuse("presence_penalty", o.presence_penalty, "a finite number");
  for (const auto& [token, bias] : o.logit_bias) {
    if (token < 0 || token >= vocab_size)
      throw UsageError("logit_bias names the token " + std::to_string(token) + "; the vocabulary has the ids 0 to " +
                       std::to_string(vocab_size - 1));
    if (std::isnan(bias) || bias == INFINITY) refuse("logit_bias", bias, "a finite number, or -inf to forbid the token");
  }
  for (const SamplingRule rule : kDefaultSamplingOrder)
    if (acts(rule, o) && std::find(o.order.begin(), o.order.end(), rule) == o.order.end())
      throw UsageError(std::string(name_of(rule)) + " is set and the order \"" + sampling_order_text(o.order) +
                       "\" leaves it out; add it to the order or do not set it");
}

Json sampling_recipe(const SamplingOptions& options) {
  Json rules = Json::array();
  for (const SamplingRule rule : options.order) {
    const bool scores_only = rule < SamplingRule::temperature;
    if (acts(rule, options) && (scores_only || options.draws())) rules.push_back({{name_of(rule), value_of(rule, options)}});
  }
  Json recipe = {{"choice", options.draws() ? "drawn" : "greedy"}, {"rules", std::move(rules)}};
  if (options.draws()) recipe["seed"] = options.seed;
  return recipe;
}

}  // namespace vitrine
