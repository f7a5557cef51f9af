// Llama and its kin: grouped-query attention with RoPE, SwiGLU, RMSNorm before each sub-layer. Touvron et al.,
// arXiv:2302.13971, section 2.2, and 2307.09288 (grouped queries). Mistral (2310.06825: a window on every layer) and Qwen 2
// (2407.10671: biases on queries, keys and values) are configurations of the same text.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <algorithm>
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

struct LlamaConfig {
  int64_t d_model, n_layers, n_heads, n_kv_heads, head_dim, d_ff, vocab_size, context_length;
  const char* family;
  double attn_dropout;
  bool qkv_bias, o_bias, mlp_bias;
  std::vector<int64_t> windows;  // of each layer; kNoWindow: global
  NormSpec norm;
  BlockForm form;
  RopeSpec rope;
  Activation activation;
  bool tied;
};

struct LlamaBlock {
  Vector ln1, ln2;      // [D]
  Weight W_Q;           // [N·H, D]
  Weight W_K, W_V;      // [G·H, D]
  Weight W_O;           // [D, N·H]
  Weight W_gate, W_in;  // [F, D]
  Weight W_out;         // [D, F]
};

class Llama final : public Model {
 public:
  explicit Llama(LlamaConfig c) : config(std::move(c)), blocks(static_cast<size_t>(config.n_layers)) {}
  Tensor residual(Context& ctx, const Step& step) const override;
  Head head() const override;
  void tensors(TensorTable& table) override;
  std::vector<CacheLayer> cache_layers() const override;
  ModelShape shape() const override;
  BlockSpec block_spec(int64_t layer) const override;
  std::vector<std::string> hook_names() const override;

 private:
  AttentionSpec attention_spec(int64_t layer) const;
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;

  LlamaConfig config;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<LlamaBlock> blocks;
  Vector ln_final;  // [D]
};

AttentionSpec Llama::attention_spec(int64_t layer) const {
  AttentionSpec spec;
  spec.scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  spec.window = config.windows[static_cast<size_t>(layer)];
  spec.dropout = config.attn_dropout;
  spec.dropout_site = static_cast<uint32_t>(layer);
  return spec;
}

Tensor Llama::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const LlamaConfig& c = config;
  const LlamaBlock& w = blocks[static_cast<size_t>(layer)];
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

Tensor Llama::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D]
  for (int layer = 0; layer < config.n_layers; ++layer) x = ctx.checkpoint(&Llama::block, *this, step, layer, x);
  return config.form.final_norm ? rms_norm(ctx, "ln_final", x, ln_final, config.norm) : x;  // [T, D]
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Llama::head() const { return {config.tied ? &W_E : &W_U, 0}; }

std::vector<CacheLayer> Llama::cache_layers() const {
  std::vector<CacheLayer> layers;
  for (const int64_t window : config.windows) layers.push_back({window, config.n_kv_heads, config.head_dim, config.head_dim});
  return layers;
}

ModelShape Llama::shape() const {
  const LlamaConfig& c = config;
  return {c.family, c.d_model, c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim, c.d_ff, c.vocab_size, c.context_length, c.tied};
}

BlockSpec Llama::block_spec(int64_t layer) const {
  return {.attention = attention_spec(layer),
          .rope = config.rope,
          .norm = config.norm,
          .norms_after = config.form.norms_after,
          .activation = config.activation};
}

std::vector<std::string> Llama::hook_names() const {
  return hook_names_of({.n_layers = config.n_layers,
                        .rotary = true,
                        .gated = true,
                        .norms = config.form.norms(),
                        .norms_after = config.form.norms_after,
                        .final_norm = config.form.final_norm});
}

void Llama::tensors(TensorTable& table) {
  const LlamaConfig& c = config;
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  table.matrix(W_E, {"W_E", "model.embed_tokens.weight", "token_embd.weight", V, D});
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    LlamaBlock& w = blocks[static_cast<size_t>(layer)];
    const auto line = [&](const char* ours, const char* huggingface, const char* gguf, Dim out, Dim in = {}) {
      return TensorLine{at_layer(std::string("blocks.{}.") + ours, layer),
                        at_layer(std::string("model.layers.{}.") + huggingface, layer),
                        at_layer(std::string("blk.{}.") + gguf, layer), out, in};
    };
    if (c.form.norms()) table.vector(w.ln1, line("ln1.w", "input_layernorm.weight", "attn_norm.weight", D));
    table.matrix(w.W_Q, line("attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D));
    table.matrix(w.W_K, line("attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D));
    table.matrix(w.W_V, line("attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D));
    if (c.qkv_bias) table.vector(w.W_Q.bias, line("attn.b_Q", "self_attn.q_proj.bias", "attn_q.bias", NH));
    if (c.qkv_bias) table.vector(w.W_K.bias, line("attn.b_K", "self_attn.k_proj.bias", "attn_k.bias", GH));
    if (c.qkv_bias) table.vector(w.W_V.bias, line("attn.b_V", "self_attn.v_proj.bias", "attn_v.bias", GH));
    table.matrix(w.W_O, line("attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH));
    if (c.o_bias) table.vector(w.W_O.bias, line("attn.b_O", "self_attn.o_proj.bias", "attn_output.bias", D));
    if (c.form.norms()) table.vector(w.ln2, line("ln2.w", "post_attention_layernorm.weight", "ffn_norm.weight", D));
    table.matrix(w.W_gate, line("mlp.W_gate", "mlp.gate_proj.weight", "ffn_gate.weight", F, D));
    table.matrix(w.W_in, line("mlp.W_in", "mlp.up_proj.weight", "ffn_up.weight", F, D));
    table.matrix(w.W_out, line("mlp.W_out", "mlp.down_proj.weight", "ffn_down.weight", D, F));
    if (c.mlp_bias) table.vector(w.W_gate.bias, line("mlp.b_gate", "mlp.gate_proj.bias", "ffn_gate.bias", F));
    if (c.mlp_bias) table.vector(w.W_in.bias, line("mlp.b_in", "mlp.up_proj.bias", "ffn_up.bias", F));
    if (c.mlp_bias) table.vector(w.W_out.bias, line("mlp.b_out", "mlp.down_proj.bias", "ffn_down.bias", D));
  }
  if (c.form.final_norm) table.vector(ln_final, {"ln_final.w", "model.norm.weight", "output_norm.weight", D});
  if (!c.tied) table.matrix(W_U, {"W_U", "lm_head.weight", "output.weight", V, D});
}

// What absent keys mean in transformers; there null key/value heads are as many as query heads.
struct Absent {
  int64_t context_length, n_kv_heads;  // 0: as many as n_heads
};

// What the three have in common.
LlamaConfig read(const ModelConfig& config, const char* family, Absent absent) {
  const ConfigReader& keys = config.keys;
  LlamaConfig c{};
  c.family = family;
  c.d_model = keys.positive("hidden_size", {"embedding_length"});
  c.n_layers = read_layers(keys, "num_hidden_layers", {"block_count"});
  c.n_heads = keys.positive("num_attention_heads", {"attention.head_count"});
  const bool silent = absent.n_kv_heads != 0 && !config.gguf && !keys.mentions("num_key_value_heads");
  c.n_kv_heads = keys.positive("num_key_value_heads", {"attention.head_count_kv"}, silent ? absent.n_kv_heads : c.n_heads);
  const auto head_dim = keys.find_positive("head_dim", {"attention.key_length", "attention.value_length"});
  if (!head_dim && c.d_model % c.n_heads != 0)
    keys.fail("num_attention_heads", "does not divide hidden_size (" + std::to_string(c.d_model) + "), and there is no head_dim");
  c.head_dim = head_dim.value_or(c.d_model / c.n_heads);
  c.d_ff = keys.positive("intermediate_size", {"feed_forward_length"});
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("max_position_embeddings", {"context_length"}, absent.context_length);
  c.attn_dropout = read_dropout(keys, "attention_dropout", 0.0);
  c.norm = {.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6)};
  c.form = read_block_form(config);
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.tied = keys.flag("tie_word_embeddings", {}, false);
  check_heads(keys, c.n_heads, c.n_kv_heads);
  refuse_flags(keys, {"rope_interleaved", "use_mrope"});  // published configurations say false
  return c;
}

}  // namespace

std::unique_ptr<Model> make_llama(const ModelConfig& config) {
  LlamaConfig c = read(config, "llama", {.context_length = 2048, .n_kv_heads = 0});
  // The reference lets every layer of a Llama see everything, whatever its file says.
  if (!config.gguf && config.keys.has("sliding_window"))
    config.keys.fail("sliding_window", "is not a setting of Llama models; expected null, or the model_type mistral");
  // GGUF files hold the rows of W_Q and W_K in another order, so that neighbouring components turn together.
  c.rope = read_rope(config, c.head_dim, config.gguf ? RopeLayout::pairs : RopeLayout::halves, 10000);
  c.windows = read_windows(config, c.n_layers, kNoWindow, [](int64_t) { return true; });
  c.qkv_bias = c.o_bias = config.keys.flag("attention_bias", {}, false);
  c.mlp_bias = config.keys.flag("mlp_bias", {}, false);
  return std::make_unique<Llama>(std::move(c));
}

std::unique_ptr<Model> make_mistral(const ModelConfig& config) {
  LlamaConfig c = read(config, "mistral", {.context_length = 131072, .n_kv_heads = 8});
  refuse_flags(config.keys, {"attention_bias", "mlp_bias"});
  c.rope = read_rope(config, c.head_dim, RopeLayout::halves, 10000);
  c.windows = read_windows(config, c.n_layers, 4096, [](int64_t) { return true; });
  return std::make_unique<Llama>(std::move(c));
}

std::unique_ptr<Model> make_qwen2(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  LlamaConfig c = read(config, "qwen2", {.context_length = 32768, .n_kv_heads = 32});
  c.rope = read_rope(config, c.head_dim, RopeLayout::halves, 10000);
  c.qkv_bias = true;
  // Windows act only where use_sliding_window says so, from layer max_window_layers on if there is no list of layers.
  if (keys.flag("use_sliding_window", {}, false)) {
    const int64_t first = keys.count("max_window_layers", {}, 28);
    c.windows = read_windows(config, c.n_layers, 4096, [](int64_t) { return true; });
    for (int64_t layer = 0; layer < std::min(first, c.n_layers) && !keys.has("layer_types"); ++layer)
      c.windows[static_cast<size_t>(layer)] = kNoWindow;
  } else {
    c.windows.assign(static_cast<size_t>(c.n_layers), kNoWindow);
    for (const std::string& type : keys.strings("layer_types"))
      if (type != "full_attention") keys.fail("layer_types", "names windows, although use_sliding_window is false or absent");
    keys.ignore({"sliding_window", "max_window_layers", "attention.sliding_window"});
  }
  return std::make_unique<Llama>(std::move(c));
}

}  // namespace vitrine
