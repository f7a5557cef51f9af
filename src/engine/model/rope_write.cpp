#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/rope_config.h"
#include "model/rope_gguf.h"

namespace vitrine {
namespace {

using Scaling = RopeSpec::Scaling;

// GGUF holds the divisors that Llama 3.1's rule gives, and not the rule's values. Published models stretch wavelengths beyond
// their original context by the factor, and leave those below a quarter of it alone; so one divisor between tells that context.
// Where there is none between, as in Llama 4, whose rule is a step, the context is any length between the two wavelengths.
Json llama3_scaling(const RopeSpec& rope) {
  RopeSpec plain = rope;
  plain.divisors = nullptr;
  const std::vector<float> frequencies = rope_frequencies(plain);
  constexpr double kLow = 1;
  double high = 4;
  const double factor = static_cast<double>(*std::max_element(rope.divisors, rope.divisors + frequencies.size()));
  double context = 0, unchanged = 1;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / static_cast<double>(frequencies[i]);
    const auto divisor = static_cast<double>(rope.divisors[i]);
    if (divisor == 1) unchanged = wavelength;
    if (divisor == 1 || divisor >= factor) continue;
    const double smooth = (1 / divisor - 1 / factor) / (1 - 1 / factor);
    context = std::round(wavelength * (smooth * (high - kLow) + kLow));
    break;
  }
  if (context == 0) {
    high = kLow;
    context = std::ceil(unchanged);
  }
  return {{"rope_type", "llama3"},
          {"factor", shortest(factor)},
          {"low_freq_factor", kLow},
          {"high_freq_factor", high},
          {"original_max_position_embeddings", static_cast<int64_t>(std::clamp(context, 1.0, 0x1p30))}};
}

Json yarn_scaling(const RopeSpec& rope) {
  Json keys = {{"rope_type", "yarn"},
               {"factor", shortest(rope.factor)},
               {"original_max_position_embeddings", static_cast<int64_t>(rope.original_context)},
               {"beta_fast", shortest(rope.beta_fast)},
               {"beta_slow", shortest(rope.beta_slow)}};
  if (!rope.truncate) keys["truncate"] = false;
  const double usual = yarn_attention_factor(rope.factor);
  if (std::abs(rope.attention_factor - usual) > 1e-7 * usual) keys["attention_factor"] = shortest(rope.attention_factor);
  return keys;
}

Json longrope_scaling(const RopeSpec& rope) {
  Json keys = {{"type", "longrope"},
               {"original_max_position_embeddings", static_cast<int64_t>(rope.original_context)},
               {"attention_factor", shortest(rope.attention_factor)}};
  for (int64_t i = 0; i < rope.rotary_dim / 2; ++i) {
    keys["short_factor"].push_back(shortest(static_cast<double>(rope.divisors[i])));
    keys["long_factor"].push_back(shortest(static_cast<double>(rope.long_divisors[i])));
  }
  return keys;
}

// rope_scaling; null without scaling.
Json scaling_of(const RopeSpec& rope) {
  if (rope.scaling == Scaling::longrope) return longrope_scaling(rope);
  if (rope.divisors != nullptr) return llama3_scaling(rope);
  switch (rope.scaling) {
    case Scaling::linear: return {{"rope_type", "linear"}, {"factor", shortest(rope.factor)}};
    case Scaling::yarn: return yarn_scaling(rope);
    case Scaling::llama3:
      return {{"rope_type", "llama3"},
              {"factor", shortest(rope.factor)},
              {"low_freq_factor", shortest(rope.low_freq_factor)},
              {"high_freq_factor", shortest(rope.high_freq_factor)},
              {"original_max_position_embeddings", static_cast<int64_t>(rope.original_context)}};
    case Scaling::proportional: {
      Json keys = {{"rope_type", "proportional"},
                   {"partial_rotary_factor", static_cast<double>(2 * rope.turning) / static_cast<double>(rope.rotary_dim)}};
      if (rope.factor != 1) keys["factor"] = shortest(rope.factor);
      return keys;
    }
    case Scaling::none:
    case Scaling::longrope: break;
  }
  return nullptr;
}

}  // namespace

Json rope_parameters(const RopeSpec& rope) {
  Json keys = scaling_of(rope);
  if (keys.is_null()) keys = {{"rope_type", "default"}};
  keys["rope_theta"] = shortest(rope.theta);
  return keys;
}

void write_rope(Json& keys, const RopeSpec& rope, ConfigFormat format) {
  if (format == ConfigFormat::gguf) return write_gguf_rope(keys, rope);
  keys["rope_theta"] = shortest(rope.theta);
  keys["rope_scaling"] = scaling_of(rope);
}

void write_layer_ropes(Json& keys, const RopeSpec& global, const RopeSpec& local, ConfigFormat format) {
  if (format == ConfigFormat::gguf) {
    keys["rope.freq_base_swa"] = local.theta;
    return;
  }
  keys.erase("rope_theta");
  keys.erase("rope_scaling");
  Json of_types = {{"full_attention", rope_parameters(global)}, {"sliding_attention", rope_parameters(local)}};
  // transformers looks for it beside the types.
  if (of_types["full_attention"].erase("truncate") + of_types["sliding_attention"].erase("truncate") > 0)
    of_types["truncate"] = false;
  keys["rope_parameters"] = std::move(of_types);
}

}  // namespace vitrine
