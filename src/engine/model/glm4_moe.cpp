// GLM-4.5, 4.6 and 4.7: a mixture of experts with a shared one after a few layers with SwiGLU, routed as in DeepSeek V3.
// Grouped-query attention with RoPE on half of each head, in some models with an RMSNorm on each head's query and key; RMSNorm
// before each sub-layer. GLM-4.5 Team, arXiv:2508.06471, section 2.1. T rows of the step (sequences one after the other), N
// n_heads, G n_kv_heads, H head_dim, D d_model, E experts, F d_ff (of layers without experts), V vocab_size.
#include <algorithm>

#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct Glm4MoeConfig : DecoderConfig {
  ExpertSpec experts = {};
  int64_t dense_layers = 0, shared = 0;  // layers without experts; units of the shared expert
  bool head_norms = false;
};

struct Glm4MoeBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};                     // [D]
  NormedAttention attn;                                                     // W_Q, W_K, W_V, W_O; q_norm, k_norm with head_norms
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "post_attention_norm"}};  // [D]
  GatedMlp mlp;                                                             // of a layer without experts: W_gate, W_in, W_out
  ExpertMlp experts;                                                        // of one with E experts
  SharedExpert shared;                                                      // beside them
};

class Glm4Moe final : public RopeDecoder {
 public:
  Glm4Moe(const Glm4MoeConfig& c, bool stacked);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const Glm4MoeConfig c;
  std::vector<Glm4MoeBlock> blocks;
};

Tensor Glm4Moe::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Glm4MoeBlock& w = blocks[static_cast<size_t>(layer)];
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
  // The best few experts give Σ weight · (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ; the shared one is added with weight 1. #mlp
  Tensor update = layer < c.dense_layers ? w.mlp(ctx, y) : w.experts(ctx, y);    // [T, D] #mlp
  if (layer >= c.dense_layers) update = add(ctx, update, w.shared(ctx, y));      // [T, D] #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", update);                       // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

Glm4Moe::Glm4Moe(const Glm4MoeConfig& config, bool stacked)
    : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    Glm4MoeBlock& w = blocks[static_cast<size_t>(layer)];
    list.begin_layer();
    list.add(w.ln1);
    c.head_norms ? list.add(w.attn) : list.add(static_cast<Attention&>(w.attn));
    list.add(w.ln2);
    if (layer < c.dense_layers) {
      list.add(w.mlp);
      continue;
    }
    add_experts(list, w.experts, c.experts, stacked);
    add_correction(list, w.experts, "mlp.gate.e_score_correction_bias");
    add_shared(list, w.shared, c.shared, "mlp.shared_experts");
  }
  end_tensors(list);
}

std::unique_ptr<Model> read_glm4_moe(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Glm4MoeConfig c{read_decoder(config, "glm4_moe", {.context_length = 131072, .n_kv_heads = 8, .d_ff = 10944})};
  leave_out_further_layers(config, c);
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.rope = read_rope(config, c, {.share = 0.5});
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.qkv_bias = keys.flag("attention_bias", {}, false);
  c.head_norms = keys.flag("use_qk_norm", {}, false);
  c.experts = read_experts(keys, "moe_intermediate_size", "expert_feed_forward_length",
                           config.gguf ? std::nullopt : std::optional<int64_t>(1408));
  c.experts.activation = c.activation;
  read_grouped_router(config, c.experts);
  c.dense_layers = std::min(keys.count("first_k_dense_replace", {"leading_dense_block_count"}, 1), c.n_layers);
  const int64_t shared = keys.positive("n_shared_experts", {"expert_shared_count"}, 1);
  check_product(keys, "n_shared_experts", "n_shared_experts * moe_intermediate_size", shared, c.experts.d_ff, kMostInHeads);
  c.shared = shared * c.experts.d_ff;
  keys.ignore({"output_router_logits", "router_aux_loss_coef"});
  return std::make_unique<Glm4Moe>(c, config.stacked_experts);
}

Json Glm4Moe::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  write_grouped_router(keys, c.experts, format);
  if (format == ConfigFormat::gguf) {
    keys["leading_dense_block_count"] = c.dense_layers;
    keys["expert_shared_count"] = c.shared / c.experts.d_ff;
    return keys;
  }
  keys["partial_rotary_factor"] = static_cast<double>(c.rope.rotary_dim) / static_cast<double>(c.head_dim);
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  keys["use_qk_norm"] = c.head_norms;
  keys["first_k_dense_replace"] = c.dense_layers;
  keys["n_shared_experts"] = c.shared / c.experts.d_ff;
  return keys;
}

}  // namespace

Family glm4_moe_family() {
  return {.name = "glm4_moe",
          .gguf = "glm4moe",
          .architecture = "Glm4MoeForCausalLM",
          .title = "GLM-4.5",
          .paper = "arXiv:2508.06471",
          .source = "src/engine/model/glm4_moe.cpp",
          .make = read_glm4_moe,
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"},
          .has_forms = false,
          .scores_sequences = false};
}

}  // namespace vitrine
