// Gemma. Multi-query (2B) or multi-head (7B) attention with RoPE, GeGLU, RMSNorm with a factor 1 + w before each sub-layer,
// embeddings scaled by sqrt(d_model), tied output. Gemma Team, arXiv:2403.08295, section 2 and table 1.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/families.h"
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

struct GemmaConfig {
  int64_t d_model, n_layers, n_heads, n_kv_heads, head_dim, d_ff, vocab_size, context_length;
  double attn_dropout;
  NormSpec norm;
  BlockForm form;
  RopeSpec rope;
  Activation activation;
  bool tied;
};

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
  explicit Gemma(const GemmaConfig& c) : config(c), blocks(static_cast<size_t>(config.n_layers)) {}
  Tensor residual(Context& ctx, const Step& step) const override;
  Head head() const override;
  void tensors(TensorTable& table) override;
  std::vector<CacheLayer> cache_layers() const override;
  ModelShape shape() const override;
  BlockSpec block_spec(int64_t layer) const override;
  std::vector<std::string> hook_names() const override;

 private:
  double embedding_scale() const { return std::sqrt(static_cast<double>(config.d_model)); }
  AttentionSpec attention_spec(int64_t layer) const;
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;

  GemmaConfig config;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<GemmaBlock> blocks;
  Vector ln_final;  // [D]
};

AttentionSpec Gemma::attention_spec(int64_t layer) const {
  AttentionSpec spec;
  spec.scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  spec.dropout = config.attn_dropout;
  spec.dropout_site = static_cast<uint32_t>(layer);
  return spec;
}

Tensor Gemma::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const GemmaConfig& c = config;
  const GemmaBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = c.form.norms_before ? rms_norm(ctx, "ln1", resid_pre, w.ln1, c.norm) : resid_pre;  // [T, D]
  auto [q, k, v] = linear(ctx, x, {w.W_Q, w.W_K, w.W_V});                                             // one pass over x
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, c.head_dim));                                       // [T, N, H]
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, c.head_dim));                                       // [T, G, H]
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, c.head_dim));                                       // [T, G, H]
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));

  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));        // [T, N, H]
  const Tensor attn_out = ctx.hook("hook_attn_out", attention_output(ctx, "attn", z, w.W_O));  // [T, D]
  Tensor resid_mid = c.form.residual ? add(ctx, resid_pre, attn_out) : attn_out;               // [T, D]
  if (c.form.norms_after) resid_mid = rms_norm(ctx, "ln1", resid_mid, w.ln1, c.norm);
  resid_mid = ctx.hook("hook_resid_mid", resid_mid);

  const Tensor y = c.form.norms_before ? rms_norm(ctx, "ln2", resid_mid, w.ln2, c.norm) : resid_mid;  // [T, D]
  const Tensor mlp_out = ctx.hook("hook_mlp_out", gated_mlp(ctx, "mlp", y, w.W_gate, w.W_in, w.W_out, c.activation));
  Tensor resid_post = c.form.residual ? add(ctx, resid_mid, mlp_out) : mlp_out;  // [T, D]
  if (c.form.norms_after) resid_post = rms_norm(ctx, "ln2", resid_post, w.ln2, c.norm);
  return frame.keep(ctx.hook("hook_resid_post", resid_post));
}

Tensor Gemma::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embed(ctx, step.tokens(), W_E);  // [T, D]
  // The original rounds the factor to bf16 when it runs in bf16; in f32 it is the square root itself.
  x = ctx.hook("hook_embed", scale(ctx, x, embedding_scale()));
  for (int layer = 0; layer < config.n_layers; ++layer) x = ctx.checkpoint(&Gemma::block, *this, step, layer, x);
  return config.form.final_norm ? rms_norm(ctx, "ln_final", x, ln_final, config.norm) : x;  // [T, D]
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Gemma::head() const { return {config.tied ? &W_E : &W_U, 0}; }

std::vector<CacheLayer> Gemma::cache_layers() const {
  return std::vector<CacheLayer>(static_cast<size_t>(config.n_layers),
                                 {kNoWindow, config.n_kv_heads, config.head_dim, config.head_dim});
}

ModelShape Gemma::shape() const {
  const GemmaConfig& c = config;
  return {"gemma", c.d_model,    c.n_layers,       c.n_heads, c.n_kv_heads,     c.head_dim,
          c.d_ff,  c.vocab_size, c.context_length, c.tied,    embedding_scale()};
}

BlockSpec Gemma::block_spec(int64_t layer) const {
  return {.attention = attention_spec(layer),
          .rope = config.rope,
          .norm = config.norm,
          .norms_after = config.form.norms_after,
          .activation = config.activation};
}

std::vector<std::string> Gemma::hook_names() const {
  return hook_names_of({.n_layers = config.n_layers,
                        .rotary = true,
                        .gated = true,
                        .norms = config.form.norms(),
                        .norms_after = config.form.norms_after,
                        .final_norm = config.form.final_norm});
}

void Gemma::tensors(TensorTable& table) {
  const GemmaConfig& c = config;
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  table.matrix(W_E, {"W_E", "model.embed_tokens.weight", "token_embd.weight", V, D});
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    GemmaBlock& w = blocks[static_cast<size_t>(layer)];
    const auto line = [&](const char* ours, const char* huggingface, const char* gguf, Dim out, Dim in = {}) {
      return TensorLine{at_layer(std::string("blocks.{}.") + ours, layer),
                        at_layer(std::string("model.layers.{}.") + huggingface, layer),
                        at_layer(std::string("blk.{}.") + gguf, layer), out, in};
    };
    if (c.form.norms()) table.vector(w.ln1, line("ln1.w", "input_layernorm.weight", "attn_norm.weight", D));
    table.matrix(w.W_Q, line("attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D));
    table.matrix(w.W_K, line("attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D));
    table.matrix(w.W_V, line("attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D));
    table.matrix(w.W_O, line("attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH));
    if (c.form.norms()) table.vector(w.ln2, line("ln2.w", "post_attention_layernorm.weight", "ffn_norm.weight", D));
    table.matrix(w.W_gate, line("mlp.W_gate", "mlp.gate_proj.weight", "ffn_gate.weight", F, D));
    table.matrix(w.W_in, line("mlp.W_in", "mlp.up_proj.weight", "ffn_up.weight", F, D));
    table.matrix(w.W_out, line("mlp.W_out", "mlp.down_proj.weight", "ffn_down.weight", D, F));
  }
  if (c.form.final_norm) table.vector(ln_final, {"ln_final.w", "model.norm.weight", "output_norm.weight", D});
  if (!c.tied) table.matrix(W_U, {"W_U", "lm_head.weight", "output.weight", V, D});
}

GemmaConfig read(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  GemmaConfig c{};
  c.d_model = keys.positive("hidden_size", {"embedding_length"});
  c.n_layers = read_layers(keys, "num_hidden_layers", {"block_count"});
  c.n_heads = keys.positive("num_attention_heads", {"attention.head_count"});
  c.n_kv_heads = keys.positive("num_key_value_heads", {"attention.head_count_kv"});
  c.head_dim = keys.positive("head_dim", {"attention.key_length", "attention.value_length"}, 256);
  c.d_ff = keys.positive("intermediate_size", {"feed_forward_length"});
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("max_position_embeddings", {"context_length"}, 8192);
  c.attn_dropout = read_dropout(keys, "attention_dropout", 0.0);
  c.norm = {.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6), .offset = config.gguf ? 0.0 : 1.0};
  c.form = read_block_form(config);
  c.rope = read_rope(config, c.head_dim, RopeLayout::halves, 10000);
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
  c.tied = keys.flag("tie_word_embeddings", {}, true);
  check_heads(keys, c.n_heads, c.n_kv_heads);
  refuse_flags(keys, {"attention_bias", "use_bidirectional_attention"});
  return c;
}

}  // namespace

std::unique_ptr<Model> make_gemma(const ModelConfig& config) { return std::make_unique<Gemma>(read(config)); }

}  // namespace vitrine
