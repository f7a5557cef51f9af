#include "model/model.h"

#include <set>

namespace vitrine {

LayerShape Model::layer_shape(int64_t layer) const {
  return block_spec(layer).shape.value_or(LayerShape{shape_.n_kv_heads, shape_.head_dim, shape_.d_ff});
}

std::vector<CacheLayer> Model::cache_layers(CacheTypes types) const {
  std::vector<CacheLayer> layers;
  for (int64_t layer = 0; layer < shape_.n_layers; ++layer) {
    const BlockSpec spec = block_spec(layer);
    if (spec.delta) {
      layers.emplace_back().state = spec.delta->states() + (spec.delta->taps - 1) * spec.delta->channels();
      continue;
    }
    if (spec.conv) {
      layers.push_back(CacheLayer::of_rows(spec.conv->taps, spec.conv->channels));
      continue;
    }
    const LayerShape s = layer_shape(layer);
    layers.push_back({.window = spec.attention.window});
    if (s.keys_of < 0) layers.back() = {spec.attention.window, s.n_kv_heads, s.head_dim, s.head_dim, 0, types};
  }
  return layers;
}

std::vector<std::string> Model::hook_names() const {
  std::set<std::string_view> tensors;
  for (const TensorLine& line : tensors_) tensors.insert(line.ours);
  std::vector<std::string> names = {"hook_embed"};
  const auto norm = [&](const std::string& prefix) {  // if there is one
    if (!tensors.contains(prefix + ".w")) return;
    for (const char* hook : {".hook_scale", ".hook_normalized_pre", ".hook_normalized"}) names.push_back(prefix + hook);
  };
  if (shape_.n_layers > 0 && block_spec(0).added_positions) names.emplace_back("hook_pos_embed");
  if (shape_.n_layers > 0 && block_spec(0).per_layer_dim > 0) {
    names.emplace_back("hook_per_layer_embed");
    norm("per_layer_norm");
    names.emplace_back("hook_per_layer");
  }
  for (int64_t layer = 0; layer < shape_.n_layers; ++layer) {
    const BlockSpec spec = block_spec(layer);
    const std::string block = "blocks." + std::to_string(layer) + ".";
    const auto add = [&](std::initializer_list<const char*> hooks) {
      for (const char* hook : hooks) names.push_back(block + hook);
    };
    add({"hook_resid_pre"});
    if (!spec.norms_after) norm(block + "ln1");
    if (spec.conv) {
      add({"conv.hook_B", "conv.hook_C", "conv.hook_x", "conv.hook_in", "conv.hook_conv", "conv.hook_post", "conv.hook_out"});
    } else if (spec.delta) {
      add({"delta.hook_pre", "delta.hook_q", "delta.hook_k", "delta.hook_v", "delta.hook_beta", "delta.hook_log_decay",
           "delta.hook_z"});
      norm(block + "delta.norm");
      add({"delta.hook_gate", "delta.hook_gated_z", "delta.hook_result", "delta.hook_out"});
    } else {
      const bool own_keys = layer_shape(layer).keys_of < 0;
      add({"attn.hook_q"});
      if (own_keys) add({"attn.hook_k"});
      if (own_keys && spec.value_norm)
        add({"attn.v_norm.hook_scale", "attn.v_norm.hook_normalized_pre", "attn.v_norm.hook_normalized"});
      if (own_keys) add({"attn.hook_v"});
      norm(block + "attn.q_norm");
      norm(block + "attn.k_norm");
      if (spec.rope) add({"attn.hook_rot_q"});
      if (spec.rope && own_keys) add({"attn.hook_rot_k"});
      add({"attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z"});
      if (spec.gated_heads) add({"attn.hook_gate", "attn.hook_gated_z"});
      add({"attn.hook_result", "attn.hook_out"});
    }
    norm(block + "ln1_post");
    add({"hook_attn_out"});
    if (spec.norms_after) norm(block + "ln1");
    add({"hook_resid_mid"});
    if (!spec.norms_after) norm(block + "ln2");
    const bool instead = spec.experts && !spec.experts_beside;  // of an MLP
    if (instead) add({"mlp.hook_router_logits", "mlp.hook_expert_indices", "mlp.hook_expert_weights"});
    add({"mlp.hook_pre"});
    if (instead || tensors.contains(block + "mlp.W_gate")) add({"mlp.hook_pre_linear"});
    add({"mlp.hook_post"});
    if (instead) add({"mlp.hook_expert_out"});
    if (spec.experts_beside) {
      for (const char* name : {"mlp_post", "router_norm", "ln2_experts"}) norm(block + name);
      add({"experts.hook_router_logits", "experts.hook_expert_indices", "experts.hook_expert_weights", "experts.hook_pre",
           "experts.hook_pre_linear", "experts.hook_post", "experts.hook_expert_out"});
      norm(block + "experts_post");
    }
    norm(block + "ln2_post");
    add({"hook_mlp_out"});
    if (spec.norms_after) norm(block + "ln2");
    if (spec.per_layer_dim > 0) {
      add({"per_layer.hook_pre", "per_layer.hook_pre_linear", "per_layer.hook_post"});
      norm(block + "per_layer_post");
      add({"hook_per_layer_out"});
    }
    add({"hook_resid_post"});
  }
  norm("ln_final");
  names.emplace_back("hook_logits");
  return names;
}

}  // namespace vitrine
