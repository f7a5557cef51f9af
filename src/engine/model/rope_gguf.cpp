#include "model/rope_gguf.h"

#include <algorithm>

#include "base/error.h"

namespace vitrine {
namespace {

using Scaling = RopeSpec::Scaling;

// Proportional RoPE as divisors, so large where nothing rotates that no angle is left.
void read_gguf_proportional(const ModelConfig& config, RopeSpec& spec) {
  constexpr double kStill = 1e20;
  spec.scaling = Scaling::proportional;
  spec.turning = spec.rotary_dim / 2;
  const float* const divisors = config.rope_divisors;
  if (divisors == nullptr) return;
  while (spec.turning > 0 && static_cast<double>(divisors[spec.turning - 1]) > kStill) --spec.turning;
  for (int64_t i = 0; i < spec.turning; ++i)
    if (divisors[i] != divisors[0])
      config.keys.fail("rope.dimension_count",
                       "comes with a rope_freqs.weight that is no rule of this family; expected one number for the pairs that "
                       "rotate and 1e30 for the others");
  if (spec.turning > 0) spec.factor = static_cast<double>(divisors[0]);
}

// llama.cpp writes the divisors as tensors and leaves the type out.
void read_gguf_longrope(const ModelConfig& config, const DecoderConfig& model, RopeSpec& spec) {
  const ConfigReader& keys = config.keys;
  spec.original_context = static_cast<double>(keys.positive("rope.scaling.original_context_length", {}, model.context_length));
  spec.attention_factor = keys.number("rope.scaling.attn_factor", {}, 1.0);
  if (!(spec.attention_factor > 0)) keys.fail("rope.scaling.attn_factor", "must be above 0");
  const std::string type = keys.string("rope.scaling.type", {}, "none");
  if (type != "none" && type != "longrope") keys.fail("rope.scaling.type", "is not supported by this family; expected longrope");
  if ((config.rope_short == nullptr) != (config.rope_long == nullptr))
    throw FileError(keys.path(), "holds one of rope_factors_short.weight and rope_factors_long.weight; expected both or none");
  if (config.rope_short == nullptr) {
    if (type == "longrope") keys.fail("rope.scaling.type", "needs rope_factors_short.weight and rope_factors_long.weight");
    return;
  }
  spec.scaling = Scaling::longrope;
  spec.divisors = config.rope_short;
  spec.long_divisors = config.rope_long;
}

void read_gguf_scaling(const ConfigReader& keys, RopeSpec& spec) {
  const std::string type = keys.string("rope.scaling.type", {}, "none");
  if (type == "linear") {
    spec.scaling = Scaling::linear;
    spec.factor = keys.number("rope.scaling.factor");
  } else if (type == "yarn") {
    spec.scaling = Scaling::yarn;
    spec.factor = keys.number("rope.scaling.factor");
    spec.original_context = static_cast<double>(keys.positive("rope.scaling.original_context_length"));
    spec.beta_fast = keys.number("rope.scaling.yarn_beta_fast", {}, 32.0);
    spec.beta_slow = keys.number("rope.scaling.yarn_beta_slow", {}, 1.0);
    spec.truncate = keys.flag("vitrine.rope.yarn_truncate", {}, true);  // llama.cpp does so always
    spec.attention_factor = keys.number("rope.scaling.yarn_attn_factor", {}, yarn_attention_factor(spec.factor));
    if (keys.number("rope.scaling.yarn_ext_factor", {}, 1.0) != 1)
      keys.fail("rope.scaling.yarn_ext_factor", "is not supported; expected 1");
    check_yarn(keys, spec, "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_attn_factor");
  } else if (type != "none") {
    keys.fail("rope.scaling.type", "is not supported; expected none, linear or yarn");
  } else if (const auto factor = keys.find_number("rope.scale_linear")) {
    spec.scaling = Scaling::linear;
    spec.factor = *factor;
  }
}

}  // namespace

RopeSpec read_gguf_rope(const ModelConfig& config, const DecoderConfig& model, int64_t head_dim, const RopeDefaults& absent) {
  const ConfigReader& keys = config.keys;
  RopeSpec spec{.theta = keys.number("rope.freq_base", {}, absent.theta),
                .rotary_dim = keys.positive("rope.dimension_count", {}, head_dim),
                .layout = absent.pairs || absent.pairs_in_gguf ? RopeLayout::pairs : RopeLayout::halves};
  check_rope(config, spec, head_dim);
  if (absent.settings.is_object() && absent.settings.value("rope_type", "") == "proportional") {
    read_gguf_proportional(config, spec);
  } else if (absent.only_longrope) {
    read_gguf_longrope(config, model, spec);
  } else {
    read_gguf_scaling(keys, spec);
    spec.divisors = config.rope_divisors;
  }
  check_rope(config, spec, head_dim);
  return spec;
}

LayerRopes read_gguf_layer_ropes(const ModelConfig& config, const DecoderConfig& model, int64_t global_head_dim,
                                 const RopeDefaults& absent) {
  const ConfigReader& keys = config.keys;
  const RopeSpec global = read_gguf_rope(config, model, global_head_dim, absent);
  const int64_t rotary_dim = std::min(global.rotary_dim, model.head_dim);
  const RopeSpec local{.theta = keys.number("rope.freq_base_swa", {}, absent.local_theta.value_or(global.theta)),
                       .rotary_dim = keys.positive("rope.dimension_count_swa", {}, rotary_dim)};
  if (!(local.theta > 0)) keys.fail("rope.freq_base_swa", "must be above 0");
  check_rope(config, local, model.head_dim);
  return {global, local};
}

void write_gguf_rope(Json& keys, const RopeSpec& rope) {
  keys["rope.freq_base"] = rope.theta;
  keys["rope.dimension_count"] = rope.rotary_dim;
  if (rope.scaling == Scaling::longrope) keys["rope.scaling.attn_factor"] = rope.attention_factor;
  if (rope.scaling != Scaling::linear && rope.scaling != Scaling::yarn) return;
  keys["rope.scaling.type"] = rope.scaling == Scaling::linear ? "linear" : "yarn";
  keys["rope.scaling.factor"] = rope.factor;
  if (rope.scaling == Scaling::linear) return;
  keys["rope.scaling.original_context_length"] = static_cast<int64_t>(rope.original_context);
  keys["rope.scaling.yarn_beta_fast"] = rope.beta_fast;
  keys["rope.scaling.yarn_beta_slow"] = rope.beta_slow;
  keys["rope.scaling.yarn_attn_factor"] = rope.attention_factor;
  if (!rope.truncate) keys["vitrine.rope.yarn_truncate"] = false;
}

}  // namespace vitrine
