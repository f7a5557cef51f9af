// Mixtral: Mistral's block, whose MLP is a mixture of experts. Grouped-query attention with RoPE, experts with SwiGLU, RMSNorm
// before each sub-layer. Jiang et al., arXiv:2401.04088, section 2.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, E experts, F d_ff (of an
// expert), V vocab_size.
#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct MixtralConfig : DecoderConfig {
  ExpertSpec experts = {};
};

struct MixtralBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                // W_Q, W_K, W_V, W_O
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  ExpertMlp mlp;                                                 // of E experts
};

class Mixtral final : public RopeDecoder {
 public:
  Mixtral(const MixtralConfig& c, bool stacked);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].mlp.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const MixtralConfig c;
  std::vector<MixtralBlock> blocks;
};

Tensor Mixtral::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const MixtralBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.attn.out(ctx, z));                 // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));    // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // The softmax of y W_routerᵀ weighs the experts; the best two give Σ weight · (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.mlp(ctx, y));                // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

Mixtral::Mixtral(const MixtralConfig& config, bool stacked)
    : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  // GGUF holds the rows of W_Q and W_K in another order, so that neighboring components rotate together.
  PartList list = begin_tensors({}, {.gguf_pairs = true});
  for (MixtralBlock& w : blocks) {
    list.add_layer(w.ln1, w.attn, w.ln2);
    add_experts(list, w.mlp, c.experts, stacked, stacked ? ExpertNames{} : kPublishedMixtral);
  }
  end_tensors(list);
}

std::unique_ptr<Model> read_mixtral(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  MixtralConfig c{read_decoder(config, "mixtral", {.context_length = 131072, .n_kv_heads = 8})};
  if (!config.gguf) c.norm.eps = read_eps(config, "rms_norm_eps", "", 1e-5);
  c.rope = read_rope(config, c, {.theta = config.gguf ? 1e4 : 1e6, .pairs_in_gguf = true});
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.set_window_of_all(keys.find_positive("sliding_window", {"attention.sliding_window"}).value_or(kNoWindow));
  c.experts = read_experts(keys, "intermediate_size", "feed_forward_length");
  c.experts.activation = c.activation;
  c.router_loss = read_router_loss(keys, 0.001);
  if (keys.number("router_jitter_noise", {}, 0.0) != 0)
    keys.fail("router_jitter_noise", "is noise on what the router reads in training, which vitrine does not have; expected 0");
  refuse_flags(keys, {"attention_bias"});
  return std::make_unique<Mixtral>(c, config.stacked_experts);
}

Json Mixtral::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    keys["expert_count"] = c.experts.count;
    keys["expert_used_count"] = c.experts.per_row;
    if (c.has_windows()) keys["attention.sliding_window"] = c.window_of_all();
    return keys;
  }
  keys["hidden_act"] = activation_key(c.activation);
  keys["sliding_window"] = c.has_windows() ? Json(c.window_of_all()) : Json(nullptr);
  keys["num_local_experts"] = c.experts.count;
  keys["num_experts_per_tok"] = c.experts.per_row;
  keys["output_router_logits"] = c.router_loss > 0;
  if (c.router_loss > 0) keys["router_aux_loss_coef"] = c.router_loss;
  return keys;
}

}  // namespace

Family mixtral_family() {
  return {.name = "mixtral",
          .gguf = "llama",
          .gguf_key = "expert_count",
          .architecture = "MixtralForCausalLM",
          .title = "Mixtral",
          .paper = "arXiv:2401.04088",
          .source = "src/engine/model/mixtral.cpp",
          .make = read_mixtral};
}

}  // namespace vitrine
