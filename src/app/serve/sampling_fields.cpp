#include "serve/sampling_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "base/error.h"
#include "generate/speculate.h"
#include "requests/shared.h"
#include "serve/grammars.h"
#include "serve/lora.h"
#include "serve/slots.h"
#include "serve/token_text.h"

namespace vitrine::serve {
namespace {

constexpr double kMostTokens = 1e9;

// What is looked at for each token that is made.
constexpr size_t kMostStops = 128, kMostEnds = 1024, kMostBiases = 4096, kMostBreakers = 16;
constexpr size_t kMostSaltBytes = 256;       // held with each cached prefix
constexpr size_t kMostStopBytes = 64 << 10;  // of all stop strings: each text that is made holds them, and a table of each

void check_count(const char* field, size_t count, size_t most) {
  if (count > most)
    throw invalid(field, "\"" + std::string(field) + "\" has " + std::to_string(count) + " entries; expected " +
                             std::to_string(most) + " at most");
}

Field same(const char* name, const Field& as) {
  Field field = as;
  field.name = name;
  field.same_as = as.name;
  field.about = "The same as `" + as.name + "`.";
  return field;
}

void add_bias(const Service& service, const OrderedJson& token, const OrderedJson& value, SamplingOptions& sampling) {
  double bias = 0;
  if (value.is_number()) {
    bias = value.get<double>();
  } else if (value.is_boolean() && !value.get<bool>()) {
    bias = -std::numeric_limits<double>::infinity();
  } else {
    throw invalid("logit_bias",
                  "\"logit_bias\" gives a token " + json_text(value) + "; expected a number, or false to forbid it");
  }
  if (token.is_number_integer()) {
    for (const int32_t id : token_ids(service.engine(), {token.get<int64_t>()}, "logit_bias"))
      sampling.logit_bias.emplace_back(id, bias);
    return;
  }
  if (!token.is_string()) throw invalid("logit_bias", "\"logit_bias\" names " + json_text(token) + "; expected a token's id");
  const std::string& text = token.get_ref<const std::string&>();
  for (const int32_t id : service.engine().prompt_ids(text, false)) sampling.logit_bias.emplace_back(id, bias);
}

// {"264": -5}, or a list of pairs [264, -5], [264, false], ["text", -5].
void read_bias(const OrderedJson& json, const Service& service, SamplingOptions& sampling) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      const bool id = !key.empty() && key.find_first_not_of("0123456789") == std::string::npos;
      const int64_t number = id && key.size() < 12 ? std::stoll(key) : INT64_MAX;
      add_bias(service, id ? OrderedJson(number) : OrderedJson(key), value, sampling);
    }
    return;
  }
  for (const OrderedJson& pair : json) {
    if (!pair.is_array() || pair.size() != 2)
      throw invalid("logit_bias", "\"logit_bias\" holds " + json_text(pair) + "; expected pairs of a token and a number");
    add_bias(service, pair[0], pair[1], sampling);
  }
}

// Empty without one. An empty one is refused, as in vLLM: whoever sends it wanted another.
std::string read_salt(const Fields& fields) {
  const std::optional<std::string> salt = fields.text("cache_salt");
  if (!salt) return {};
  if (salt->empty() || salt->size() > kMostSaltBytes)
    throw invalid("cache_salt", "\"cache_salt\" has " + std::to_string(salt->size()) + " bytes; expected 1 to " +
                                    std::to_string(kMostSaltBytes));
  return *salt;
}

}  // namespace

const std::vector<Field>& sampling_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    const std::vector<Field> numbers = sampling_number_fields();
    std::vector<Field> fields = {
        same("repeat_penalty", *std::ranges::find(numbers, "repetition_penalty", &Field::name)),
        {"dry_sequence_breakers", texts,
         "With dry_multiplier: repetitions are not followed across these strings, at most 16. Default: line feed, `:`, `\"` and "
         "`*`.",
         Use::honored},
        {"logit_bias", object | list,
         "Added to the logits of tokens: {\"id\": number}, or pairs [id or text, number]; false instead of a number forbids "
         "the token.",
         Use::honored},
        {"seed", integer,
         "The same seed gives the same text, bit for bit with --exact; without it near ties may be decided differently "
         "beside other requests or after a cached prompt. Absent or -1: a random one. All 64 bits are used.",
         Use::honored},
        {"stop", text | texts,
         "Strings that end the text, also across token boundaries; they are not part of it. At most 128, with 64 KiB in total.",
         Use::honored},
        {"include_stop_str_in_output", boolean, "The text ends with the stop string that ended it. Default: false.",
         Use::honored},
        {"stop_token_ids", integers, "Additional tokens that end the text.", Use::honored},
        {"ignore_eos", boolean, "The model's own end tokens do not end the text. Default: false.", Use::honored},
        {"min_tokens", integer, "Minimum number of new tokens before an end token. Default: 0.", Use::honored, 0, kMostTokens},
    };
    const Field drafts{
        "speculative.n_max",
        integer,
        "Maximum tokens, up to 7, to draft for each step: by the server's draft model, or without one by prompt lookup, those "
        "that followed the last tokens earlier in the text. The output is the same. 0: none. Default: --draft-tokens or --lookup "
        "of the server.",
        Use::honored,
        0,
        1e9};
    fields.push_back(
        {"cache_salt", text,
         "Cached prefixes of prompts are shared only with requests that have the same salt, up to 256 bytes, and the "
         "same key or address.",
         Use::honored});
    fields.push_back(
        {"id_slot", integer,
         "The slot under which the text can be saved with POST /slots/{id}; it chooses nothing else. Absent or -1: 0.",
         Use::honored, -1, 65535});
    fields.push_back(
        {"timeout", type::number,
         "Seconds for the whole answer, after which it ends with the error `timeout` (408). At most, and by default, "
         "--request-timeout.",
         Use::honored, 0.001, 86400});
    fields.insert(fields.end(), {drafts, same("prompt_lookup_num_tokens", drafts)});
    return joined({numbers, fields, grammar_fields(), lora_fields()});
  }();
  return table;
}

const std::vector<Field>& foreign_fields() {
  static const std::vector<Field> table = {
      Field::ignored("user", "The user of the request; has no effect."),
      Field::ignored("metadata", "The client's metadata; has no effect."),
      Field::ignored("store", "Nothing is stored."),
      Field::ignored("service_tier", "There is only one tier."),
      Field::ignored("safety_identifier", "Has no effect."),
      Field::ignored("prompt_cache_key", "Prompts of one key with a common prefix always share it; `cache_salt` separates them."),
      Field::ignored("prompt_cache_retention", "Prefixes are kept as long as there is memory."),
      Field::ignored("cache_prompt", "Prompts of one key with a common prefix always share it; the output is the same."),
      Field::ignored("n_cache_reuse", "Prefixes of prompts are shared as a whole."),
      Field::ignored("repeat_last_n", "The repetition penalty covers the whole prompt and text."),
      Field::ignored("skip_special_tokens", "The end token is never part of the text; other control tokens are shown by name."),
      Field::ignored("spaces_between_special_tokens", "No spaces are added."),
      Field::ignored("priority", "The queue is fair between keys or addresses."),
      Field::ignored("speculative.n_min", "Short drafts are verified, too."),
      Field::ignored("speculative.p_min", "Prompt lookup has no probabilities."),
      Field::ignored("request_id", "Use the header X-Request-Id."),
      Field::ignored("sse_ping_interval", "A comment is sent if nothing else is sent for five seconds."),
      Field::refused("use_beam_search", "use `vitrine generate --beams` for beam search", "[false]"),
      Field::refused("length_penalty", "it applies only to beam search", "[0, 1]"),
      Field::refused("early_stopping", "it applies only to beam search", "[false]"),
      Field::refused("truncate_prompt_tokens", "prompts are never truncated; shorten yours"),
      Field::refused("prompt_logprobs", "use /v1/completions with echo and logprobs", "[0]"),
      Field::refused("dynatemp_range", "use temperature", "[0]"),
      Field::ignored("dynatemp_exponent", "Belongs to dynatemp_range, which is not supported."),
  };
  return table;
}

SamplingOptions openai_sampling() {
  SamplingOptions sampling;
  sampling.temperature = 1;
  return sampling;
}

Sampled read_sampling(const Fields& fields, const Service& service, const SamplingOptions& defaults) {
  Sampled sampled;
  GenerateOptions& o = sampled.options;
  SamplingOptions& s = o.sampling = defaults;
  read_sampling_numbers(fields, s);
  if (fields.has("dry_sequence_breakers")) s.dry_sequence_breakers = fields.texts("dry_sequence_breakers");
  check_count("dry_sequence_breakers", s.dry_sequence_breakers.size(), kMostBreakers);
  o.breakers = breakers_of(service.engine(), s);
  if (const OrderedJson* bias = fields.find("logit_bias")) read_bias(*bias, service, s);
  const int64_t seed = fields.integer("seed").value_or(-1);
  sampled.seeded = seed != -1;
  s.seed = sampled.seeded ? static_cast<uint64_t>(seed) : std::random_device{}();
  o.stops = fields.texts("stop");
  check_count("stop", o.stops.size(), kMostStops);
  size_t stop_bytes = 0;
  for (const std::string& stop : o.stops) stop_bytes += stop.size();
  if (stop_bytes > kMostStopBytes)
    throw invalid("stop", "the strings of \"stop\" have " + std::to_string(stop_bytes) + " bytes; expected " +
                              std::to_string(kMostStopBytes) + " at most, so shorten them");
  check_count("logit_bias", s.logit_bias.size(), kMostBiases);
  check_count("stop_token_ids", fields.integers("stop_token_ids").size(), kMostEnds);
  sampled.include_stop = fields.boolean("include_stop_str_in_output", false);
  if (!fields.boolean("ignore_eos", false)) o.eos = service.end_tokens();
  for (const int32_t id : token_ids(service.engine(), fields.integers("stop_token_ids"), "stop_token_ids")) o.eos.push_back(id);
  o.min_tokens = fields.integer("min_tokens").value_or(0);
  o.constraint = read_grammar(fields, service);
  sampled.adapters = read_adapters(fields, service);
  sampled.cache_salt = read_salt(fields);
  sampled.slot = std::max<int64_t>(fields.integer("id_slot").value_or(-1), 0);
  check_slot(service, sampled.slot, "id_slot");
  double seconds = service.options().request_seconds;
  if (const std::optional<double> asked = fields.number("timeout")) seconds = seconds > 0 ? std::min(seconds, *asked) : *asked;
  if (seconds > 0) sampled.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::llround(1e3 * seconds));
  sampled.drafts = std::min(fields.integer("speculative.n_max").value_or(service.usual_drafts()), kMostDrafts);
  return sampled;
}

namespace {

// llama.cpp's name of a rule; "" for the bias.
std::string native_name(SamplingRule rule) {
  if (rule == SamplingRule::bias) return "";
  if (rule <= SamplingRule::presence) return "penalties";
  return rule == SamplingRule::typical ? "typ_p" : sampling_order_text({rule});
}

}  // namespace

std::vector<std::string> sampler_names(const std::vector<SamplingRule>& order) {
  std::vector<std::string> names;
  for (const SamplingRule rule : order) {
    std::string name = native_name(rule);
    if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) continue;
    names.push_back(std::move(name));
  }
  return names;
}

void apply_samplers(const std::vector<std::string>& names, SamplingOptions& s) {
  const std::vector<SamplingRule> rules = SamplingOptions().order;
  s.order = {SamplingRule::bias};
  for (const std::string& given : names) {
    const std::string name = given == "typical_p" ? "typ_p" : given;
    bool known = name == "infill";  // for prompts of another form
    for (const SamplingRule rule : rules) {
      if (native_name(rule) != name) continue;
      known = true;
      if (std::find(s.order.begin(), s.order.end(), rule) == s.order.end()) s.order.push_back(rule);
    }
    if (known) continue;
    std::string all;
    for (const std::string& each : sampler_names(rules)) all += (all.empty() ? "" : ", ") + each;
    throw invalid("samplers", "\"samplers\" names \"" + given + "\"; known are " + all);
  }
  for (const SamplingOption& option : sampling_options()) {
    if (std::find(s.order.begin(), s.order.end(), option.rule) != s.order.end()) continue;
    if (option.rule == SamplingRule::temperature && s.temperature) {
      s.temperature = s.temperature == 0 ? 0.0 : 1.0;  // still greedy, or drawn
    } else {
      option.reset(s);
    }
  }
}

}  // namespace vitrine::serve
