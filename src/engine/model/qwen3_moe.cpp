// Qwen 3 with a mixture of experts. Grouped-query attention with RoPE and an RMSNorm on each head's query and key, RMSNorm before
// each sub-layer, experts with SwiGLU; layers that the configuration names have one MLP for all rows instead.
// Qwen Team, arXiv:2505.09388, section 2. Qwen 2's mixture (2407.10671, section 2.2.2) has no norms on queries and keys, biases
// instead, and a shared expert behind a gate.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, E experts, F d_ff (of
// layers without experts), V vocab_size.
#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct Qwen3MoeConfig : DecoderConfig {
  ExpertSpec experts = {};
  std::vector<bool> dense = {};  // layers without experts
  bool head_norms = true;
  int64_t shared = 0;  // units of the shared expert; 0: there is none
};

struct Qwen3MoeBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  NormedAttention attn;                                          // W_Q, W_K, W_V, W_O; q_norm, k_norm with head_norms
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                  // of a layer without experts: W_gate, W_in, W_out
  ExpertMlp experts;                                             // of one with E experts
  SharedExpert shared;                                           // beside them, with a gate
};

class Qwen3Moe final : public RopeDecoder {
 public:
  Qwen3Moe(const Qwen3MoeConfig& c, bool stacked);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const Qwen3MoeConfig c;
  std::vector<Qwen3MoeBlock> blocks;
};

Tensor Qwen3Moe::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Qwen3MoeBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);       // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);          // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  if (c.head_norms) q = w.attn.q_norm(ctx, q);  // [T, N, H] #attention
  if (c.head_norms) k = w.attn.k_norm(ctx, k);  // [T, G, H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.attn.out(ctx, z));                 // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));    // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // The softmax of y W_routerᵀ weighs the experts; the best few give Σ weight · (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ. #mlp
  Tensor update = c.dense[static_cast<size_t>(layer)] ? w.mlp(ctx, y) : w.experts(ctx, y);                // [T, D] #mlp
  if (c.shared > 0 && !c.dense[static_cast<size_t>(layer)]) update = add(ctx, update, w.shared(ctx, y));  // [T, D] #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", update);                                                // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));                           // [T, D] #residual
}

Qwen3Moe::Qwen3Moe(const Qwen3MoeConfig& config, bool stacked)
    : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    Qwen3MoeBlock& w = blocks[static_cast<size_t>(layer)];
    list.add_layer(w.ln1);
    c.head_norms ? list.add(w.attn) : list.add(static_cast<Attention&>(w.attn));
    list.add(w.ln2);
    if (c.dense[static_cast<size_t>(layer)]) {
      list.add(w.mlp);
      continue;
    }
    add_experts(list, w.experts, c.experts, stacked);
    if (c.shared == 0) continue;
    add_shared_gate(list, w.shared, "mlp.shared_expert_gate");
    add_shared(list, w.shared, c.shared, "mlp.shared_expert");
  }
  end_tensors(list);
}

std::unique_ptr<Model> read_qwen3_moe(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Qwen3MoeConfig c{read_decoder(config, "qwen3_moe", {.context_length = 32768, .n_kv_heads = 4})};
  c.rope = read_rope(config, c, {});
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.qkv_bias = c.o_bias = keys.flag("attention_bias", {}, false);
  if (keys.flag("use_sliding_window", {}, false))
    c.set_window_of_all(keys.mentions("sliding_window") ? keys.find_positive("sliding_window").value_or(kNoWindow) : 4096);
  else
    keys.ignore({"sliding_window", "attention.sliding_window"});
  c.experts = read_experts(keys, "moe_intermediate_size", "expert_feed_forward_length",
                           config.gguf ? std::nullopt : std::optional<int64_t>(768));
  c.experts.activation = c.activation;
  // llama.cpp divides by the sum whatever a file says.
  c.experts.renormalize = keys.flag("norm_topk_prob", {"expert_weights_norm"}, config.gguf);
  c.router_loss = read_router_loss(keys, 0.001);
  c.dense = read_dense_layers(config, c.n_layers);
  return std::make_unique<Qwen3Moe>(c, config.stacked_experts);
}

std::unique_ptr<Model> read_qwen2_moe(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Qwen3MoeConfig c{read_decoder(config, "qwen2_moe", {.context_length = 32768, .n_kv_heads = 16, .d_ff = 5632})};
  c.head_norms = false;
  c.rope = read_rope(config, c, {});
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.qkv_bias = keys.flag(config.gguf ? "attention_bias" : "qkv_bias", {}, true);
  if (keys.flag("use_sliding_window", {}, false)) {
    const int64_t first = keys.count("max_window_layers", {}, 28);
    c.windows = read_windows(config, c.n_layers, 4096, [&](int64_t layer) { return layer % 2 == 0 && layer < first; });
  } else {
    c.windows = read_qwen_windows(config, c.n_layers);
  }
  const std::optional<int64_t> silent = config.gguf ? std::nullopt : std::optional<int64_t>(1408);
  c.experts = read_experts(keys, "moe_intermediate_size", "expert_feed_forward_length", silent);
  c.experts.activation = c.activation;
  c.experts.renormalize = keys.flag("norm_topk_prob", {"expert_weights_norm"}, false);
  c.shared = keys.positive("shared_expert_intermediate_size", {"expert_shared_feed_forward_length"},
                           config.gguf ? std::nullopt : std::optional<int64_t>(5632));
  c.router_loss = read_router_loss(keys, 0.001);
  c.dense = read_dense_layers(config, c.n_layers);
  return std::make_unique<Qwen3Moe>(c, config.stacked_experts);
}

Json Qwen3Moe::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    write_gguf_experts(keys, c.experts);
    if (c.shared > 0) keys["expert_shared_feed_forward_length"] = c.shared;
    if (c.experts.renormalize == (c.shared > 0)) keys["expert_weights_norm"] = c.experts.renormalize;
    return keys;
  }
  keys["hidden_act"] = activation_key(c.activation);
  keys[c.shared > 0 ? "qkv_bias" : "attention_bias"] = c.qkv_bias;
  keys["use_sliding_window"] = c.has_windows();
  if (c.shared > 0) keys["shared_expert_intermediate_size"] = c.shared;
  if (c.shared > 0 && c.has_windows()) write_windows(keys, c.windows, format);
  if (c.shared == 0 && c.has_windows()) keys["sliding_window"] = c.window_of_all();
  keys["num_experts"] = c.experts.count;
  keys["num_experts_per_tok"] = c.experts.per_row;
  keys["moe_intermediate_size"] = c.experts.d_ff;
  keys["norm_topk_prob"] = c.experts.renormalize;
  write_dense_layers(keys, c.dense);
  keys["output_router_logits"] = c.router_loss > 0;
  if (c.router_loss > 0) keys["router_aux_loss_coef"] = c.router_loss;
  return keys;
}

}  // namespace

Family qwen3_moe_family() {
  return {.name = "qwen3_moe",
          .gguf = "qwen3moe",
          .architecture = "Qwen3MoeForCausalLM",
          .title = "Qwen 3 MoE",
          .paper = "arXiv:2505.09388",
          .source = "src/engine/model/qwen3_moe.cpp",
          .make = read_qwen3_moe};
}

Family qwen2_moe_family() {
  return {.name = "qwen2_moe",
          .gguf = "qwen2moe",
          .architecture = "Qwen2MoeForCausalLM",
          .title = "Qwen 2 MoE",
          .paper = "arXiv:2407.10671",
          .source = "src/engine/model/qwen3_moe.cpp",
          .make = read_qwen2_moe,
          .has_forms = false};
}

}  // namespace vitrine
