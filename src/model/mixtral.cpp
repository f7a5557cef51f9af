// Mixtral: Mistral's block, whose MLP is a mixture of experts. Grouped-query attention with RoPE, experts with SwiGLU, RMSNorm
// before each sub-layer. Jiang et al., arXiv:2401.04088, section 2.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, E experts, F d_ff (of an
// expert), V vocab_size.
#include <algorithm>
#include <cmath>

#include "model/expert_tensors.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct MixtralConfig : DecoderConfig {
  int64_t window = kNoWindow;  // of every layer
  ExpertSpec experts = {};
};

struct MixtralBlock {
  Vector ln1, ln2;        // [D]
  Weight W_Q;             // [N·H, D]
  Weight W_K, W_V;        // [G·H, D]
  Weight W_O;             // [D, N·H]
  ExpertWeights experts;  // router [E, D]; of each expert gate and in [F, D], out [D, F]
};

class Mixtral final : public Model {
 public:
  Mixtral(const MixtralConfig& c, bool stacked);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  AttentionSpec attention_spec(int64_t layer) const;

  const MixtralConfig c;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<MixtralBlock> blocks;
  Vector ln_final;  // [D]
};

Tensor Mixtral::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const MixtralBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = rms_norm(ctx, "ln1", resid_pre, w.ln1, c.norm);  // [T, D] #norm
  auto [q, k, v] = linear(ctx, x, {w.W_Q, w.W_K, w.W_V});           // one pass over x #attention
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, c.head_dim));     // [T, N, H] #attention
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, c.head_dim));     // [T, G, H] #attention
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, c.head_dim));     // [T, G, H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));      // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));      // #rope

  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));        // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", attention_output(ctx, "attn", z, w.W_O));  // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));          // [T, D] #residual

  const Tensor y = rms_norm(ctx, "ln2", resid_mid, w.ln2, c.norm);  // [T, D] #norm
  // The softmax of y W_routerᵀ weighs the experts; the best two give Σ weight · (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ. #mlp
  const Tensor experts = expert_mlp(ctx, "mlp", y, w.experts.router, w.experts.experts, c.experts);  // [T, D] #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", experts);                                          // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));                      // [T, D] #residual
}

AttentionSpec Mixtral::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .window = c.window,                                       // #window
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

Tensor Mixtral::embedded(Context& ctx, const Step& step) const {
  return ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
}

Tensor Mixtral::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                               // [T, D]
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(&Mixtral::block, *this, step, layer, x);  // #layers
  return rms_norm(ctx, "ln_final", x, ln_final, c.norm);  // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Mixtral::head() const { return {c.tied ? &W_E : &W_U, 0}; }  // #head

BlockSpec Mixtral::block_spec(int64_t layer) const {
  return {.attention = attention_spec(layer), .rope = c.rope, .norm = c.norm, .activation = c.activation, .experts = c.experts};
}

Mixtral::Mixtral(const MixtralConfig& config, bool stacked) : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  // GGUF holds the rows of W_Q and W_K in another order, so that neighbouring components rotate together.
  const StoredLayout qk{.gguf_pairs = true};
  const ExpertNames published{
      .router = "block_sparse_moe.gate", .experts = "block_sparse_moe.experts", .gate = "w1", .in = "w3", .out = "w2"};
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    MixtralBlock& w = blocks[static_cast<size_t>(layer)];
    list.layer(layer, "model.layers.");
    list.add(w.ln1, "ln1.w", "input_layernorm.weight", "attn_norm.weight", D);
    list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D, qk);
    list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D, qk);
    list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
    list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH);
    list.add(w.ln2, "ln2.w", "post_attention_layernorm.weight", "ffn_norm.weight", D);
    add_experts(list, w.experts, c.experts, D, stacked, stacked ? ExpertNames{} : published);
  }
  list.end_layers();
  list.add(ln_final, "ln_final.w", "model.norm.weight", "output_norm.weight", D);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_mixtral(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  MixtralConfig c{read_decoder(config, "mixtral", {.context_length = 131072, .n_kv_heads = 8})};
  if (!config.gguf) c.norm.eps = read_eps(config, "rms_norm_eps", "", 1e-5);
  c.rope = read_rope(config, c, {.theta = config.gguf ? 1e4 : 1e6, .pairs_in_gguf = true});
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.window = keys.find_positive("sliding_window", {"attention.sliding_window"}).value_or(kNoWindow);
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
    if (c.window != kNoWindow) keys["attention.sliding_window"] = c.window;
    return keys;
  }
  keys["hidden_act"] = activation_key(c.activation);
  keys["sliding_window"] = c.window == kNoWindow ? Json(nullptr) : Json(c.window);
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
          .source = "src/model/mixtral.cpp",
          .make = read_mixtral,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight"}};
}

}  // namespace vitrine
