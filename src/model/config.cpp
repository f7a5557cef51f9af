#include "model/config.h"

#include <array>
#include <utility>

namespace vitrine {

std::string at_layer(std::string_view pattern, int64_t layer) {
  const size_t hole = pattern.find("{}");
  if (hole == std::string_view::npos) return std::string(pattern);
  return std::string(pattern.substr(0, hole)) + std::to_string(layer) + std::string(pattern.substr(hole + 2));
}

Activation read_activation(const ConfigReader& keys, std::string_view key, std::initializer_list<std::string_view> older,
                           std::optional<std::string> fallback) {
  static constexpr std::array<std::pair<std::string_view, Activation>, 9> kNames = {{
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"gelu_new", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh},
      {"gelu_tanh", Activation::gelu_tanh},
      {"gelu", Activation::gelu_exact},
      {"gelu_python", Activation::gelu_exact},
      {"silu", Activation::silu},
      {"swish", Activation::silu},
      {"relu", Activation::relu},
  }};
  const std::string name = keys.string(key, older, std::move(fallback));
  for (const auto& [known, activation] : kNames)
    if (name == known) return activation;
  std::string list;
  for (const auto& [known, activation] : kNames) list += (list.empty() ? "" : ", ") + std::string(known);
  keys.fail(key, "is not an activation vitrine knows; expected one of " + list);
}

RopeSpec read_rope(const ModelConfig& config, int64_t head_dim, RopeLayout layout, double default_theta) {
  const ConfigReader& keys = config.keys;
  RopeSpec spec;
  spec.layout = layout;
  spec.rotary_dim = head_dim;
  spec.divisors = config.rope_divisors;
  if (config.gguf) {
    spec.theta = keys.number("rope.freq_base", {}, default_theta);
    spec.rotary_dim = keys.positive("rope.dimension_count", {}, head_dim);
    const std::string type = keys.string("rope.scaling.type", {}, "none");
    if (type == "linear") {
      spec.scaling = RopeSpec::Scaling::linear;
      spec.factor = keys.number("rope.scaling.factor");
    } else if (type != "none") {
      keys.fail("rope.scaling.type", "is not supported; expected none or linear");
    } else if (const auto factor = keys.find_number("rope.scale_linear")) {
      spec.scaling = RopeSpec::Scaling::linear;
      spec.factor = *factor;
    }
  } else {
    // transformers 5 writes rope_parameters with everything in it, older versions rope_theta and rope_scaling.
    const auto parameters = keys.find_object("rope_parameters");
    const auto scaling = parameters ? parameters : keys.find_object("rope_scaling");
    spec.theta = keys.number("rope_theta", {}, default_theta);
    if (scaling) {
      spec.theta = scaling->number("rope_theta", {}, spec.theta);  // either object may hold it, and then wins
      const std::string type = scaling->string("rope_type", {"type"}, "default");
      if (scaling->number("partial_rotary_factor", {}, 1.0) != 1.0)
        scaling->fail("partial_rotary_factor", "is not supported; in the families here every component of a head turns");
      if (type == "linear") {
        spec.scaling = RopeSpec::Scaling::linear;
        spec.factor = scaling->number("factor");
      } else if (type == "llama3") {
        spec.scaling = RopeSpec::Scaling::llama3;
        spec.factor = scaling->number("factor");
        spec.low_freq_factor = scaling->number("low_freq_factor");
        spec.high_freq_factor = scaling->number("high_freq_factor");
        spec.original_context = static_cast<double>(scaling->positive("original_max_position_embeddings"));
        if (!(spec.high_freq_factor > spec.low_freq_factor) || !(spec.low_freq_factor > 0))
          scaling->fail("high_freq_factor", "must be above low_freq_factor, which must be above 0");
      } else if (type != "default") {
        scaling->fail("rope_type", "is not supported; expected default, linear or llama3");
      }
      scaling->ignore({"original_max_position_embeddings"});
    }
  }
  if (!(spec.theta > 0)) keys.fail(config.gguf ? "rope.freq_base" : "rope_theta", "must be above 0");
  if (spec.scaling != RopeSpec::Scaling::none && !(spec.factor > 0))
    keys.fail("rope_scaling", "has a factor that is not above 0");
  if (spec.rotary_dim % 2 != 0 || spec.rotary_dim <= 0 || spec.rotary_dim > head_dim)
    keys.fail(config.gguf ? "rope.dimension_count" : "head_dim",
              "gives " + std::to_string(spec.rotary_dim) + " turning components; RoPE needs an even number from 2 to head_dim (" +
                  std::to_string(head_dim) + ")");
  return spec;
}

std::vector<std::string> hook_names_of(const HookParts& parts) {
  std::vector<std::string> names = {"hook_embed"};
  if (parts.positions) names.emplace_back("hook_pos_embed");
  const auto norm = [&](const std::string& prefix) {
    for (const char* hook : {"hook_scale", "hook_normalized_pre", "hook_normalized"}) names.push_back(prefix + hook);
  };
  for (int64_t layer = 0; layer < parts.n_layers; ++layer) {
    const std::string block = "blocks." + std::to_string(layer) + ".";
    const auto add = [&](const char* hook) { names.push_back(block + hook); };
    add("hook_resid_pre");
    if (parts.norms && !parts.norms_after) norm(block + "ln1.");
    for (const char* hook : {"attn.hook_q", "attn.hook_k", "attn.hook_v"}) add(hook);
    if (parts.rotary)
      for (const char* hook : {"attn.hook_rot_q", "attn.hook_rot_k"}) add(hook);
    for (const char* hook : {"attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z", "attn.hook_result", "attn.hook_out"})
      add(hook);
    if (parts.post_norms) norm(block + "ln1_post.");
    add("hook_attn_out");
    if (parts.norms && parts.norms_after) norm(block + "ln1.");
    add("hook_resid_mid");
    if (parts.norms && !parts.norms_after) norm(block + "ln2.");
    add("mlp.hook_pre");
    if (parts.gated) add("mlp.hook_pre_linear");
    add("mlp.hook_post");
    if (parts.post_norms) norm(block + "ln2_post.");
    add("hook_mlp_out");
    if (parts.norms && parts.norms_after) norm(block + "ln2.");
    add("hook_resid_post");
  }
  if (parts.final_norm) norm("ln_final.");
  names.emplace_back("hook_logits");
  return names;
}

}  // namespace vitrine
