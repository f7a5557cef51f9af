// Qwen 3 with a mixture of experts. Grouped-query attention with RoPE and an RMSNorm on each head's query and key, RMSNorm before
// each sub-layer, experts with SwiGLU; layers that the configuration names have one MLP for all rows instead.
// Qwen Team, arXiv:2505.09388, section 2.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, E experts, F d_ff (of
// layers without experts), V vocab_size.
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
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct Qwen3MoeConfig : DecoderConfig {
  bool attention_bias = false;
  int64_t window = kNoWindow;  // of every layer
  ExpertSpec experts = {};
  std::vector<bool> dense = {};  // layers without experts
};

struct Qwen3MoeBlock {
  Vector ln1, ln2;        // [D]
  Vector q_norm, k_norm;  // [H]
  Weight W_Q;             // [N·H, D]
  Weight W_K, W_V;        // [G·H, D]
  Weight W_O;             // [D, N·H]
  ExpertWeights experts;  // none: a layer without
  Weight W_gate, W_in;    // [F, D] of a layer without experts
  Weight W_out;           // [D, F]
};

class Qwen3Moe final : public Model {
 public:
  Qwen3Moe(const Qwen3MoeConfig& c, bool stacked);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  AttentionSpec attention_spec(int64_t layer) const;

  const Qwen3MoeConfig c;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<Qwen3MoeBlock> blocks;
  Vector ln_final;  // [D]
};

Tensor Qwen3Moe::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Qwen3MoeBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = rms_norm(ctx, "ln1", resid_pre, w.ln1, c.norm);  // [T, D] #norm
  auto [q, k, v] = linear(ctx, x, {w.W_Q, w.W_K, w.W_V});           // one pass over x #attention
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, c.head_dim));     // [T, N, H] #attention
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, c.head_dim));     // [T, G, H] #attention
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, c.head_dim));     // [T, G, H] #attention
  q = rms_norm(ctx, "attn.q_norm", q, w.q_norm, c.norm);            // [T, N, H] #attention
  k = rms_norm(ctx, "attn.k_norm", k, w.k_norm, c.norm);            // [T, G, H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));      // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));      // #rope

  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));        // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", attention_output(ctx, "attn", z, w.W_O));  // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));          // [T, D] #residual

  const Tensor y = rms_norm(ctx, "ln2", resid_mid, w.ln2, c.norm);  // [T, D] #norm
  // The softmax of y W_routerᵀ weighs the experts; the best few give Σ weight · (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ. #mlp
  Tensor mlp_out = c.dense[static_cast<size_t>(layer)]
                       ? gated_mlp(ctx, "mlp", y, w.W_gate, w.W_in, w.W_out, c.activation)  // #mlp
                       : expert_mlp(ctx, "mlp", y, w.experts.router, w.experts.experts, c.experts);
  mlp_out = ctx.hook("hook_mlp_out", mlp_out);                                   // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec Qwen3Moe::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .window = c.window,                                       // #window
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

Tensor Qwen3Moe::embedded(Context& ctx, const Step& step) const {
  return ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
}

Tensor Qwen3Moe::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                                // [T, D]
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(&Qwen3Moe::block, *this, step, layer, x);  // #layers
  return rms_norm(ctx, "ln_final", x, ln_final, c.norm);  // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Qwen3Moe::head() const { return {c.tied ? &W_E : &W_U, 0}; }  // #head

BlockSpec Qwen3Moe::block_spec(int64_t layer) const {
  BlockSpec spec{.attention = attention_spec(layer), .rope = c.rope, .norm = c.norm, .activation = c.activation};
  if (!c.dense[static_cast<size_t>(layer)]) spec.experts = c.experts;
  return spec;
}

Qwen3Moe::Qwen3Moe(const Qwen3MoeConfig& config, bool stacked)
    : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  const Dim H{"head_dim", c.head_dim};
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    Qwen3MoeBlock& w = blocks[static_cast<size_t>(layer)];
    list.layer(layer, "model.layers.");
    list.add(w.ln1, "ln1.w", "input_layernorm.weight", "attn_norm.weight", D);
    list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D);
    list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D);
    list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
    if (c.attention_bias) {
      list.add(w.W_Q.bias, "attn.b_Q", "self_attn.q_proj.bias", "attn_q.bias", NH);
      list.add(w.W_K.bias, "attn.b_K", "self_attn.k_proj.bias", "attn_k.bias", GH);
      list.add(w.W_V.bias, "attn.b_V", "self_attn.v_proj.bias", "attn_v.bias", GH);
    }
    list.add(w.q_norm, "attn.q_norm.w", "self_attn.q_norm.weight", "attn_q_norm.weight", H);
    list.add(w.k_norm, "attn.k_norm.w", "self_attn.k_norm.weight", "attn_k_norm.weight", H);
    list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH);
    if (c.attention_bias) list.add(w.W_O.bias, "attn.b_O", "self_attn.o_proj.bias", "attn_output.bias", D);
    list.add(w.ln2, "ln2.w", "post_attention_layernorm.weight", "ffn_norm.weight", D);
    if (!c.dense[static_cast<size_t>(layer)]) {
      add_experts(list, w.experts, c.experts, D, stacked);
      continue;
    }
    list.add(w.W_gate, "mlp.W_gate", "mlp.gate_proj.weight", "ffn_gate.weight", F, D);
    list.add(w.W_in, "mlp.W_in", "mlp.up_proj.weight", "ffn_up.weight", F, D);
    list.add(w.W_out, "mlp.W_out", "mlp.down_proj.weight", "ffn_down.weight", D, F);
  }
  list.end_layers();
  list.add(ln_final, "ln_final.w", "model.norm.weight", "output_norm.weight", D);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

// Layer `layer` of these: experts in every decoder_sparse_step-th layer but those that mlp_only_layers lists.
std::vector<bool> read_dense_layers(const ModelConfig& config, int64_t n_layers) {
  std::vector<bool> dense(static_cast<size_t>(n_layers), false);
  if (config.gguf) return dense;  // has no key for them
  const int64_t step = config.keys.positive("decoder_sparse_step", {}, 1);
  for (int64_t layer = 0; layer < n_layers; ++layer) dense[static_cast<size_t>(layer)] = (layer + 1) % step != 0;
  for (const int64_t layer : config.keys.counts("mlp_only_layers"))
    if (layer < n_layers) dense[static_cast<size_t>(layer)] = true;
  return dense;
}

std::unique_ptr<Model> read_qwen3_moe(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Qwen3MoeConfig c{read_decoder(config, "qwen3_moe", {.context_length = 32768, .n_kv_heads = 4})};
  c.rope = read_rope(config, c, {});
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.attention_bias = keys.flag("attention_bias", {}, false);
  if (keys.flag("use_sliding_window", {}, false))
    c.window = keys.mentions("sliding_window") ? keys.find_positive("sliding_window").value_or(kNoWindow) : 4096;
  else
    keys.ignore({"sliding_window", "attention.sliding_window"});
  c.experts = read_experts(keys, "moe_intermediate_size", "expert_feed_forward_length",
                           config.gguf ? std::nullopt : std::optional<int64_t>(768));
  c.experts.activation = c.activation;
  // llama.cpp divides by the sum whatever a file says.
  c.experts.renormalise = keys.flag("norm_topk_prob", {"expert_weights_norm"}, config.gguf);
  c.router_loss = read_router_loss(keys, 0.001);
  c.dense = read_dense_layers(config, c.n_layers);
  return std::make_unique<Qwen3Moe>(c, config.stacked_experts);
}

Json Qwen3Moe::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  Json dense = Json::array();
  for (int64_t layer = 0; layer < c.n_layers; ++layer)
    if (c.dense[static_cast<size_t>(layer)]) dense.push_back(layer);
  if (format == ConfigFormat::gguf) {
    write_gguf_experts(keys, c.experts);
    if (!c.experts.renormalise) keys["expert_weights_norm"] = false;
    return keys;
  }
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.attention_bias;
  keys["use_sliding_window"] = c.window != kNoWindow;
  if (c.window != kNoWindow) keys["sliding_window"] = c.window;
  keys["num_experts"] = c.experts.count;
  keys["num_experts_per_tok"] = c.experts.per_row;
  keys["moe_intermediate_size"] = c.experts.d_ff;
  keys["norm_topk_prob"] = c.experts.renormalise;
  keys["mlp_only_layers"] = dense;
  keys["decoder_sparse_step"] = 1;
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
          .source = "src/model/qwen3_moe.cpp",
          .make = read_qwen3_moe,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight"}};
}

}  // namespace vitrine
