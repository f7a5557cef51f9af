// Gemma. Multi-query (2B) or multi-head (7B) attention with RoPE, GeGLU, RMSNorm with a factor 1 + w before each sub-layer,
// embeddings scaled by sqrt(d_model), tied output. Gemma Team, arXiv:2403.08295, section 2 and table 1.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
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

struct GemmaBlock {
  Vector ln1, ln2;      // [D]
  Weight W_Q;           // [N·H, D]
  Weight W_K, W_V;      // [G·H, D]
  Weight W_O;           // [D, N·H]
  Weight W_gate, W_in;  // [F, D]
  Weight W_out;         // [D, F]
};

class Gemma final : public Model {
 public:
  explicit Gemma(const DecoderConfig& c);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  AttentionSpec attention_spec(int64_t layer) const;

  const DecoderConfig c;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<GemmaBlock> blocks;
  Vector ln_final;  // [D]
};

Tensor Gemma::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const GemmaBlock& w = blocks[static_cast<size_t>(layer)];
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
  // GeGLU: (gelu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", gated_mlp(ctx, "mlp", y, w.W_gate, w.W_in, w.W_out, c.activation));  // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec Gemma::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

Tensor Gemma::embedded(Context& ctx, const Step& step) const {
  const Tensor x = embed(ctx, step.tokens(), W_E);  // [T, D] #embed
  // The original rounds the factor to bf16 when it runs in bf16; in f32 it is the square root itself.
  return ctx.hook("hook_embed", scale(ctx, x, c.embedding_scale));  // #embedding-scale
}

Tensor Gemma::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                             // [T, D]
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(&Gemma::block, *this, step, layer, x);  // #layers
  return rms_norm(ctx, "ln_final", x, ln_final, c.norm);  // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Gemma::head() const { return {c.tied ? &W_E : &W_U, 0}; }  // #head

BlockSpec Gemma::block_spec(int64_t layer) const {
  return {.attention = attention_spec(layer), .rope = c.rope, .norm = c.norm, .activation = c.activation};
}

Gemma::Gemma(const DecoderConfig& config) : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  const StoredLayout norm{.gguf_offset = 1};  // GGUF holds the factor 1 + w
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    GemmaBlock& w = blocks[static_cast<size_t>(layer)];
    list.layer(layer, "model.layers.");
    list.add(w.ln1, "ln1.w", "input_layernorm.weight", "attn_norm.weight", D, norm);
    list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D);
    list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D);
    list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
    list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH);
    list.add(w.ln2, "ln2.w", "post_attention_layernorm.weight", "ffn_norm.weight", D, norm);
    list.add(w.W_gate, "mlp.W_gate", "mlp.gate_proj.weight", "ffn_gate.weight", F, D);
    list.add(w.W_in, "mlp.W_in", "mlp.up_proj.weight", "ffn_up.weight", F, D);
    list.add(w.W_out, "mlp.W_out", "mlp.down_proj.weight", "ffn_down.weight", D, F);
  }
  list.end_layers();
  list.add(ln_final, "ln_final.w", "model.norm.weight", "output_norm.weight", D, norm);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_gemma(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  DecoderConfig c = read_decoder(config, "gemma", {.context_length = 8192, .head_dim = 256, .tied = true});
  c.embedding_scale = std::sqrt(static_cast<double>(c.d_model));
  c.norm.offset = config.gguf ? 0.0 : 1.0;
  c.rope = read_rope(config, c, {});
  // "gelu" in old configurations was a slip: every Gemma was trained with the tanh form. Other names of the exact form mean it,
  // as in transformers. Some configurations say both keys.
  const auto activation = [&](const char* key, const char* other) {
    const char* named = keys.has(key) ? key : other;
    if (keys.string(named, {}, "") == "gelu") return Activation::gelu_tanh;
    return read_activation(keys, named, {}, "gelu_pytorch_tanh");
  };
  c.activation = activation("hidden_act", "hidden_activation");
  if (activation("hidden_activation", "hidden_act") != c.activation)
    keys.fail("hidden_activation", "contradicts hidden_act (" + keys.string("hidden_act") + "). Remove the wrong one");
  refuse_flags(keys, {"attention_bias", "use_bidirectional_attention"});
  return std::make_unique<Gemma>(c);
}

Json Gemma::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) return keys;
  // "gelu" would be read as the tanh form.
  keys["hidden_act"] = c.activation == Activation::gelu_exact ? "gelu_python" : activation_key(c.activation);
  keys["hidden_activation"] = keys["hidden_act"];
  keys["attention_bias"] = false;
  return keys;
}

}  // namespace

Family gemma_family() {
  return {.name = "gemma",
          .gguf = "gemma",
          .architecture = "GemmaForCausalLM",
          .title = "Gemma",
          .paper = "arXiv:2403.08295",
          .source = "src/model/gemma.cpp",
          .make = read_gemma,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"}};
}

}  // namespace vitrine
