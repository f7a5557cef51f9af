// Phi-3.5-MoE. LayerNorm before each sub-layer, grouped-query attention with RoPE that LongRoPE stretches, experts with SwiGLU
// that SparseMixer chooses one after the other; biases around attention and of the logits. Abdin et al., arXiv:2404.14219,
// section 2; Liu et al., 2409.12136 (SparseMixer); Ding et al., 2402.13753 (LongRoPE). T rows of the step (sequences one after
// the other), N n_heads, G n_kv_heads, H head_dim, D d_model, E experts, F d_ff (of an expert), V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct PhiMoeConfig : DecoderConfig {
  ExpertSpec experts = {};
  double router_jitter = 0.01;  // half of how far a logit may be from the best one's to count beside it
  bool head_bias = false;       // of the logits
};

struct PhiMoeBlock {
  LayerNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                  // W_Q, W_K, W_V, W_O, with biases where the file has them
  LayerNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  ExpertMlp mlp;                                                   // of E experts
};

class PhiMoe final : public Decoder {
 public:
  PhiMoe(const PhiMoeConfig& c, bool stacked);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].mlp.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  AttentionSpec attention_spec(int64_t layer) const;

  const PhiMoeConfig c;
  std::vector<PhiMoeBlock> blocks;
  LayerNorm ln_final{{"ln_final", "model.norm", "output_norm"}};  // [D]
};

Tensor PhiMoe::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const PhiMoeBlock& w = blocks[static_cast<size_t>(layer)];
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
  // The best expert by y W_routerᵀ, then the best of the others, give Σ weight · (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ; a weight is
  // the softmax over those near to the chosen one, and mostly 1. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.mlp(ctx, y));                // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec PhiMoe::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .window = c.window_of_all(),                              // #window
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

PhiMoe::PhiMoe(const PhiMoeConfig& config, bool stacked) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation, .qkv_bias = c.qkv_bias, .o_bias = c.o_bias});
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", list.size.V, list.size.D);
  for (PhiMoeBlock& w : blocks) {
    list.add_layer(w.ln1, w.attn, w.ln2);
    add_experts(list, w.mlp, c.experts, stacked, stacked ? ExpertNames{.router = "mlp.router"} : kPublishedMixtral);
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", list.size.V, list.size.D);
  if (c.head_bias) list.add((c.tied ? W_E : W_U).bias, "b_U", "lm_head.bias", "output.bias", list.size.V);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_phimoe(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  PhiMoeConfig c{read_decoder(config, "phimoe", {.context_length = 131072, .n_kv_heads = 8, .d_ff = 6400})};
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.rope = read_rope(config, c, {.theta = config.gguf ? 1e4 : 1e6, .only_longrope = true, .mscales = true});
  c.qkv_bias = c.o_bias = keys.flag("attention_bias", {}, false);
  c.head_bias = keys.flag(config.gguf ? "head_bias" : "lm_head_bias", {}, false);
  // llama.cpp writes 0 for no window.
  const bool window = !config.gguf || keys.find_count("attention.sliding_window").value_or(0) > 0;
  if (window) c.set_window_of_all(keys.find_positive("sliding_window", {"attention.sliding_window"}).value_or(kNoWindow));
  c.experts = read_experts(keys, "intermediate_size", "feed_forward_length", 6400);
  if (c.experts.per_row != 2) keys.fail("num_experts_per_tok", "is not supported by this family, as in transformers; expected 2");
  c.experts.activation = c.activation;
  c.router_jitter = keys.number("router_jitter_noise", {"vitrine.router_jitter_noise"}, 0.01);
  if (!(c.router_jitter >= 0)) keys.fail("router_jitter_noise", "must not be negative");
  c.experts.near = 2 * c.router_jitter;
  keys.ignore({"input_jitter_noise", "output_router_logits", "router_aux_loss_coef"});  // of training, which is refused
  return std::make_unique<PhiMoe>(c, config.stacked_experts);
}

Json PhiMoe::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  const bool windows = c.has_windows();
  if (format == ConfigFormat::gguf) {
    keys["expert_count"] = c.experts.count;
    keys["expert_used_count"] = c.experts.per_row;
    keys["attention.sliding_window"] = windows ? c.window_of_all() : 0;
    if (c.rope.scaling == RopeSpec::Scaling::longrope)
      keys["rope.scaling.original_context_length"] = static_cast<int64_t>(c.rope.original_context);
    if (c.router_jitter != 0.01) keys["vitrine.router_jitter_noise"] = c.router_jitter;
    return keys;
  }
  if (Json& rope = keys["rope_scaling"]; rope.is_object()) {
    rope["short_mscale"] = rope["long_mscale"] = rope["attention_factor"];
    rope.erase("attention_factor");
  }
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  keys["lm_head_bias"] = c.head_bias;
  keys["sliding_window"] = windows ? Json(c.window_of_all()) : Json(nullptr);
  keys["num_local_experts"] = c.experts.count;
  keys["num_experts_per_tok"] = c.experts.per_row;
  keys["router_jitter_noise"] = shortest(c.router_jitter);
  return keys;
}

}  // namespace

Family phimoe_family() {
  return {.name = "phimoe",
          .gguf = "phimoe",
          .architecture = "PhimoeForCausalLM",
          .other_architecture = "PhiMoEForCausalLM",
          .title = "Phi-3.5-MoE",
          .paper = "arXiv:2404.14219",
          .source = "src/engine/model/phimoe.cpp",
          .make = read_phimoe,
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_factors_short.weight", "rope_factors_long.weight"},
          .has_forms = false};
}

}  // namespace vitrine
