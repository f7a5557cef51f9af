#include "generate/sampling_options.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/error.h"

namespace vitrine {
namespace {

using S = SamplingOptions;

// The only place that knows a number's range and meaning.
constexpr SamplingOption kOptions[] = {
    {"temperature", &S::temperature, SamplingRule::temperature, 0, 1e6, 1, "a number above 0, or 0 for greedy",
     "Divide logits by this and sample; 0 is greedy"},
    {"top_k", &S::top_k, SamplingRule::top_k, -1, 2147483647, 0, "a number of tokens; 0 and -1 are off",
     "Sample from the k most likely tokens; 0 and -1 are off"},
    {"top_p", &S::top_p, SamplingRule::top_p, 0, 1, 1, "a probability from 0 to 1",
     "Sample from the most likely tokens whose probabilities sum to this; 1 is off"},
    {"min_p", &S::min_p, SamplingRule::min_p, 0, 1, 0, "a probability from 0 to 1",
     "Sample from tokens with at least this times the probability of the most likely one; 0 is off"},
    {"typical_p", &S::typical_p, SamplingRule::typical, 0, 1, 1, "a probability above 0 and up to 1",
     "Sample from the most typical tokens (locally typical sampling) whose probabilities sum to this; 1 is off"},
    {"top_n_sigma", &S::top_n_sigma, SamplingRule::top_n_sigma, -1, 1e6, 0, "a number of standard deviations; 0 and -1 are off",
     "Sample from tokens whose logit is within this many standard deviations of the largest; 0 and -1 are off"},
    {"xtc_probability", &S::xtc_probability, SamplingRule::xtc, 0, 1, 0, "a probability from 0 to 1",
     "Probability, at each token, that all but the least likely of the tokens above xtc_threshold are removed (XTC); 0 is off"},
    {"xtc_threshold", &S::xtc_threshold, SamplingRule::xtc, 0, 1, 0, "a probability from 0 to 1",
     "With xtc_probability: the probability from which XTC may remove a token, by default 0.1; above 0.5 XTC is off"},
    {"mirostat", &S::mirostat, SamplingRule::mirostat, 0, 2, 0, "1 or 2, or 0 for off",
     "Keep the surprise of the text near mirostat_tau by Mirostat, version 1 or 2; 0 is off"},
    {"mirostat_tau", &S::mirostat_tau, SamplingRule::mirostat, 0, 1e6, 0, "a number of bits from 0",
     "With mirostat: the surprise aimed at, in bits, by default 5"},
    {"mirostat_eta", &S::mirostat_eta, SamplingRule::mirostat, 0, 1e6, 0, "a number from 0",
     "With mirostat: how fast the limit follows the surprise, by default 0.1"},
    {"repetition_penalty", &S::repetition_penalty, SamplingRule::repetition, 0, 1e6, 1, "a number above 0 (1 changes nothing)",
     "Divide the positive logits of previous tokens by this, multiply negative ones; 1 is off"},
    {"frequency_penalty", &S::frequency_penalty, SamplingRule::frequency, -1e6, 1e6, 0, "a finite number",
     "Subtract this from a token's logit for each time it was generated; 0 is off"},
    {"presence_penalty", &S::presence_penalty, SamplingRule::presence, -1e6, 1e6, 0, "a finite number",
     "Subtract this from a token's logit if it was generated; 0 is off"},
    {"dry_multiplier", &S::dry_multiplier, SamplingRule::dry, 0, 1e6, 0, "a number from 0",
     "DRY: subtract this * base^(n - allowed length) from the logit of a token that would continue a repetition of n tokens; 0 "
     "is "
     "off"},
    {"dry_base", &S::dry_base, SamplingRule::dry, 1, 1e6, 0, "a number from 1", "With dry_multiplier: the base, by default 1.75"},
    {"dry_allowed_length", &S::dry_allowed_length, SamplingRule::dry, 0, 2147483647, 0, "a number of tokens",
     "With dry_multiplier: shorter repetitions are allowed, by default 2"},
    {"dry_penalty_last_n", &S::dry_penalty_last_n, SamplingRule::dry, -1, 2147483647, 0, "a number of tokens, or -1 for all",
     "With dry_multiplier: the number of last tokens in which repetitions are found; -1, the default, is all; 0 is off"},
};

constexpr const char* kRuleNames[] = {"bias",  "repetition", "frequency", "presence",    "dry", "temperature", "top_k",
                                      "top_p", "min_p",      "typical",   "top_n_sigma", "xtc", "mirostat"};

const char* name_of(SamplingRule rule) { return kRuleNames[static_cast<size_t>(rule)]; }

std::string number(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

[[noreturn]] void refuse(const char* option, double value, const std::string& expected) {
  throw UsageError(std::string(option) + " is " + number(value) + "; expected " + expected);
}

const SamplingOption& switch_of(SamplingRule rule) {
  return *std::find_if(std::begin(kOptions), std::end(kOptions), [&](const SamplingOption& o) { return o.rule == rule; });
}

// Whether the rule changes anything with these options.
bool acts(SamplingRule rule, const SamplingOptions& o) {
  if (rule == SamplingRule::bias) return !o.logit_bias.empty();
  const SamplingOption& option = switch_of(rule);
  const std::optional<double> value = option.get(o);
  if (!value || *value == option.off) return false;
  if (rule == SamplingRule::top_k || rule == SamplingRule::top_n_sigma) return *value > 0;
  if (rule == SamplingRule::dry) return o.dry_penalty_last_n != 0;
  if (rule == SamplingRule::xtc) return o.xtc_threshold <= 0.5;
  return true;
}

Json value_of(SamplingRule rule, const SamplingOptions& o) {
  Json all = Json::object();
  if (rule == SamplingRule::bias) {
    for (const auto& [token, bias] : o.logit_bias) all[std::to_string(token)] = std::isinf(bias) ? Json("-inf") : Json(bias);
    return all;
  }
  for (const SamplingOption& option : kOptions)
    if (option.rule == rule) all[option.name] = option.json(o);
  if (rule == SamplingRule::dry) all["dry_sequence_breakers"] = o.dry_sequence_breakers;
  return all.size() == 1 ? all.begin().value() : all;
}

}  // namespace

bool SamplingOption::is_whole() const {
  return std::holds_alternative<std::optional<int64_t> S::*>(member) || std::holds_alternative<int64_t S::*>(member);
}

bool SamplingOption::is_optional() const {
  return std::holds_alternative<std::optional<int64_t> S::*>(member) ||
         std::holds_alternative<std::optional<double> S::*>(member);
}

bool SamplingOption::includes_low() const { return rule != SamplingRule::typical && rule != SamplingRule::repetition; }

std::optional<double> SamplingOption::get(const SamplingOptions& options) const {
  return std::visit(
      [&](auto at) -> std::optional<double> {
        if constexpr (requires { (options.*at).has_value(); }) {
          return options.*at ? std::optional<double>(static_cast<double>(*(options.*at))) : std::nullopt;
        } else {
          return static_cast<double>(options.*at);
        }
      },
      member);
}

void SamplingOption::set(SamplingOptions& options, double value) const {
  if (is_whole()) value = std::isnan(value) ? low - 1 : std::clamp(value, -0x1p62, 0x1p62);
  std::visit(
      [&](auto at) {
        if constexpr (requires { (options.*at).has_value(); }) {
          options.*at = static_cast<typename std::remove_reference_t<decltype(options.*at)>::value_type>(value);
        } else {
          options.*at = static_cast<std::remove_reference_t<decltype(options.*at)>>(value);
        }
      },
      member);
}

void SamplingOption::reset(SamplingOptions& options) const {
  std::visit([&, usual = SamplingOptions()](auto at) { options.*at = usual.*at; }, member);
}

Json SamplingOption::json(const SamplingOptions& options) const {
  const std::optional<double> value = get(options);
  return value ? json_of(*value) : Json(nullptr);
}

Json SamplingOption::json_of(double value) const { return is_whole() ? Json(static_cast<int64_t>(value)) : Json(value); }

std::span<const SamplingOption> sampling_options() { return kOptions; }

const SamplingOption* find_sampling_option(std::string_view name) {
  for (const SamplingOption& option : kOptions)
    if (name == option.name) return &option;
  return nullptr;
}

bool SamplingOptions::draws() const {
  if (temperature && *temperature == 0) return false;
  return temperature || top_k || top_p || min_p || typical_p || top_n_sigma || xtc_probability || mirostat != 0;
}

bool SamplingOptions::changes_scores() const {
  for (int rule = 0; rule < static_cast<int>(SamplingRule::temperature); ++rule)
    if (acts(static_cast<SamplingRule>(rule), *this)) return true;
  return false;
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
    std::string_view name = names.substr(0, comma);
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    name = name.substr(0, name.find_last_not_of(' ') + 1);
    names.remove_prefix(std::min(comma + 1, names.size()));
    const auto known = std::find(std::begin(kRuleNames), std::end(kRuleNames), name);
    if (known == std::end(kRuleNames)) {
      std::string all;
      for (const char* each : kRuleNames) all.append(all.empty() ? "" : ", ").append(each);
      throw UsageError("the sampler \"" + std::string(name) + "\" is unknown; known samplers: " + all);
    }
    const auto rule = static_cast<SamplingRule>(known - std::begin(kRuleNames));
    if (std::find(order.begin(), order.end(), rule) != order.end())
      throw UsageError("the sampler \"" + std::string(name) + "\" is named twice; name each at most once");
    order.push_back(rule);
  }
  return order;
}

void check_sampling_options(const SamplingOptions& o, int64_t vocab_size) {
  for (const SamplingOption& option : kOptions) {
    const std::optional<double> value = option.get(o);
    if (!value) continue;
    const bool in_range = *value <= option.high && (option.includes_low() ? *value >= option.low : *value > option.low);
    if (!in_range) refuse(option.name, *value, option.expected);  // NaN is not in it
  }
  for (const auto& [token, bias] : o.logit_bias) {
    if (token < 0 || token >= vocab_size)
      throw UsageError("logit_bias names the token " + std::to_string(token) + "; the vocabulary has the ids 0 to " +
                       std::to_string(vocab_size - 1));
    if (std::isnan(bias) || bias == INFINITY) refuse("logit_bias", bias, "a finite number, or -inf to forbid the token");
  }
  for (const SamplingRule rule : SamplingOptions().order)
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
