// Qwen 3. Grouped-query attention with RoPE and an RMSNorm on each head's query and key, SwiGLU, RMSNorm before each sub-layer.
// Qwen Team, arXiv:2505.09388, section 2.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <algorithm>
#include <cmath>

#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct Qwen3Config : DecoderConfig {
  bool attention_bias = false;
  std::vector<int64_t> windows = {};  // of each layer; kNoWindow: global
};

struct Qwen3Block {
  Vector ln1, ln2;        // [D]
  Vector q_norm, k_norm;  // [H]
  Weight W_Q;             // [N·H, D]
  Weight W_K, W_V;        // [G·H, D]
  Weight W_O;             // [D, N·H]
  Weight W_gate, W_in;    // [F, D]
  Weight W_out;           // [D, F]
};

class Qwen3 final : public Model {
 public:
  explicit Qwen3(const Qwen3Config& c);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  AttentionSpec attention_spec(int64_t layer) const;

  const Qwen3Config c;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<Qwen3Block> blocks;
  Vector ln_final;  // [D]
};

Tensor Qwen3::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Qwen3Block& w = blocks[static_cast<size_t>(layer)];
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
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", gated_mlp(ctx, "mlp", y, w.W_gate, w.W_in, w.W_out, c.activation));  // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec Qwen3::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .window = c.windows[static_cast<size_t>(layer)],          // #window
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

Tensor Qwen3::embedded(Context& ctx, const Step& step) const {
  return ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
}

Tensor Qwen3::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                             // [T, D]
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(&Qwen3::block, *this, step, layer, x);  // #layers
  return rms_norm(ctx, "ln_final", x, ln_final, c.norm);  // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Qwen3::head() const { return {c.tied ? &W_E : &W_U, 0}; }  // #head

BlockSpec Qwen3::block_spec(int64_t layer) const {
  return {.attention = attention_spec(layer), .rope = c.rope, .norm = c.norm, .activation = c.activation};
}

Qwen3::Qwen3(const Qwen3Config& config) : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  const Dim H{"head_dim", c.head_dim};
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    Qwen3Block& w = blocks[static_cast<size_t>(layer)];
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
    list.add(w.W_gate, "mlp.W_gate", "mlp.gate_proj.weight", "ffn_gate.weight", F, D);
    list.add(w.W_in, "mlp.W_in", "mlp.up_proj.weight", "ffn_up.weight", F, D);
    list.add(w.W_out, "mlp.W_out", "mlp.down_proj.weight", "ffn_down.weight", D, F);
  }
  list.end_layers();
  list.add(ln_final, "ln_final.w", "model.norm.weight", "output_norm.weight", D);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_qwen3(const ModelConfig& config) {
  Qwen3Config c{read_decoder(config, "qwen3", {.context_length = 32768, .n_kv_heads = 32, .head_dim = 128})};
  c.rope = read_rope(config, c, {});
  c.activation = read_activation(config.keys, "hidden_act", {}, "silu");
  c.attention_bias = config.keys.flag("attention_bias", {}, false);
  c.windows = read_qwen_windows(config, c.n_layers);
  return std::make_unique<Qwen3>(c);
}

Json Qwen3::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  const bool windows = std::any_of(c.windows.begin(), c.windows.end(), [](int64_t window) { return window != kNoWindow; });
  if (windows) write_windows(keys, c.windows, format);
  if (format == ConfigFormat::gguf) return keys;
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.attention_bias;
  keys["use_sliding_window"] = windows;
  return keys;
}

}  // namespace

Family qwen3_family() {
  return {.name = "qwen3",
          .gguf = "qwen3",
          .architecture = "Qwen3ForCausalLM",
          .title = "Qwen 3",
          .paper = "arXiv:2505.09388",
          .source = "src/model/qwen3.cpp",
          .make = read_qwen3,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight"}};
}

}  // namespace vitrine
