// OLMoE. RMSNorm before each sub-layer, one RMSNorm over the queries of all heads and one over the keys, RoPE, a mixture of
// experts with SwiGLU whose weights are the router's probabilities as they are. Muennighoff et al., arXiv:2409.02060, section 2.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, E experts, V vocab_size.
#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct OlmoeConfig : DecoderConfig {
  ExpertSpec experts = {};
};

struct OlmoeBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  NormedAttention attn;                                          // W_Q, W_K, W_V, W_O; q_norm [N·H], k_norm [G·H]
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  ExpertMlp experts;                                             // E of them
};

class Olmoe final : public RopeDecoder {
 public:
  Olmoe(const OlmoeConfig& c, bool stacked);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const OlmoeConfig c;
  std::vector<OlmoeBlock> blocks;
};

Tensor Olmoe::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const OlmoeBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  // The norm is of all heads together: its mean square runs over N·H components. #attention
  q = w.attn.q_norm(ctx, merge_heads(ctx, q));                                                // [T, N·H] #attention
  k = w.attn.k_norm(ctx, merge_heads(ctx, k));                                                // [T, G·H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, split_heads(ctx, q, c.head_dim), step, c.rope));  // [T, N, H] #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, split_heads(ctx, k, c.head_dim), step, c.rope));  // [T, G, H] #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));       // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.attn.out(ctx, z));                      // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));         // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // The softmax of y W_routerᵀ weighs the experts; the best few give Σ weight · (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.experts(ctx, y));            // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

Olmoe::Olmoe(const OlmoeConfig& config, bool stacked) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (OlmoeBlock& w : blocks) {
    list.begin_layer();
    list.add(w.ln1);
    list.add_qkv(w.attn);
    list.add(w.attn.q_norm, list.size.NH);
    list.add(w.attn.k_norm, list.size.GH);
    list.add_out(w.attn);
    list.add(w.ln2);
    add_experts(list, w.experts, c.experts, stacked);
  }
  end_tensors(list);
}

std::unique_ptr<Model> read_olmoe(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  OlmoeConfig c{read_decoder(config, "olmoe", {.context_length = 4096, .n_kv_heads = 0, .d_ff = 2048})};
  if (c.head_dim * c.n_heads != c.d_model)
    keys.fail("head_dim", "is not supported by this family; expected hidden_size / num_attention_heads");
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.rope = read_rope(config, c, {});
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.qkv_bias = c.o_bias = keys.flag("attention_bias", {}, false);
  c.experts = read_experts(keys, "intermediate_size", "feed_forward_length", 2048);
  c.experts.activation = c.activation;
  c.experts.renormalize = keys.flag("norm_topk_prob", {"expert_weights_norm"}, false);
  c.router_loss = read_router_loss(keys, 0.01);
  if (keys.has("clip_qkv")) keys.fail("clip_qkv", "is not supported; expected null, as in published models");
  return std::make_unique<Olmoe>(c, config.stacked_experts);
}

Json Olmoe::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    keys["expert_count"] = c.experts.count;
    keys["expert_used_count"] = c.experts.per_row;
    return keys;
  }
  keys.erase("head_dim");
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  keys["num_experts"] = c.experts.count;
  keys["num_experts_per_tok"] = c.experts.per_row;
  keys["norm_topk_prob"] = c.experts.renormalize;
  keys["output_router_logits"] = c.router_loss > 0;
  if (c.router_loss > 0) keys["router_aux_loss_coef"] = c.router_loss;
  return keys;
}

}  // namespace

Family olmoe_family() {
  return {.name = "olmoe",
          .gguf = "olmoe",
          .architecture = "OlmoeForCausalLM",
          .title = "OLMoE",
          .paper = "arXiv:2409.02060",
          .source = "src/engine/model/olmoe.cpp",
          .make = read_olmoe,
          .scores_sequences = false};
}

}  // namespace vitrine
