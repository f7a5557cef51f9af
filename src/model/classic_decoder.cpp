// The classic decoder: sinusoidal positions, full attention with biases, LayerNorm with weight and bias before or after each
// sub-layer, a two-layer MLP with GELU or ReLU. Vaswani et al., arXiv:1706.03762, section 3 (norms after: figure 1; norms
// before: Xiong et al., arXiv:2002.04745). Tensor names are those of PyTorch's TransformerEncoderLayer.
// T rows of the step (sequences one after the other), N n_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/families.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct ClassicConfig {
  int64_t d_model, n_layers, n_heads, d_ff, vocab_size, context_length;
  bool norms_before, scale_embedding, tied;
  SinusoidLayout positions;
  NormSpec norm;
  Activation activation;
  double dropout;
};

struct ClassicBlock {
  Weight W_Q, W_K, W_V;               // [D, D] + bias [D]: thirds of the file's in_proj
  Weight W_O;                         // [D, D] + bias [D]
  Vector ln1_w, ln1_b, ln2_w, ln2_b;  // [D]
  Weight W_in;                        // [F, D] + bias [F]
  Weight W_out;                       // [D, F] + bias [D]
};

// Where dropout acts; a layer's sites are four apart.
enum Site : uint32_t { kPattern, kAttention, kHidden, kMlp };

class ClassicDecoder final : public Model {
 public:
  explicit ClassicDecoder(const ClassicConfig& c) : config(c), blocks(static_cast<size_t>(c.n_layers)) {}
  Tensor residual(Context& ctx, const Step& step) const override;
  Head head() const override { return {config.tied ? &W_E : &W_U, 0}; }
  void tensors(TensorTable& table) override;
  std::vector<CacheLayer> cache_layers() const override;
  ModelShape shape() const override;
  BlockSpec block_spec(int64_t layer) const override;
  std::vector<std::string> hook_names() const override;

 private:
  Tensor block_norms_before(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  Tensor block_norms_after(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  double embedding_scale() const { return config.scale_embedding ? std::sqrt(static_cast<double>(config.d_model)) : 1; }
  AttentionSpec attention_spec(int64_t layer) const;
  Tensor attend(Context& ctx, const Step& step, int layer, const Tensor& x) const;
  Tensor mlp(Context& ctx, int layer, const Tensor& x) const;

  ClassicConfig config;
  Weight W_E;  // [V, D]; its bias, like W_U's, is the output's
  Weight W_U;  // [V, D] + bias [V], if it is not the embedding
  std::vector<ClassicBlock> blocks;
  Vector ln_final_w, ln_final_b;  // [D], with norms before
};

AttentionSpec ClassicDecoder::attention_spec(int64_t layer) const {
  AttentionSpec spec;
  spec.scale = 1 / std::sqrt(static_cast<double>(config.d_model / config.n_heads));
  spec.dropout = config.dropout;
  spec.dropout_site = static_cast<uint32_t>(layer) * 4 + kPattern;
  return spec;
}

Tensor ClassicDecoder::attend(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  const ClassicBlock& w = blocks[static_cast<size_t>(layer)];
  const int64_t head_dim = config.d_model / config.n_heads;
  auto [q, k, v] = linear(ctx, x, {w.W_Q, w.W_K, w.W_V});
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, head_dim));                            // [T, N, H]
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, head_dim));                            // [T, N, H]
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, head_dim));                            // [T, N, H]
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H]
  const Tensor out = attention_output(ctx, "attn", z, w.W_O);                            // [T, D]
  return ctx.hook("hook_attn_out", dropout(ctx, out, config.dropout, static_cast<uint32_t>(layer) * 4 + kAttention));
}

Tensor ClassicDecoder::mlp(Context& ctx, int layer, const Tensor& x) const {
  const ClassicBlock& w = blocks[static_cast<size_t>(layer)];
  const auto site = [&](Site s) { return static_cast<uint32_t>(layer) * 4 + s; };
  const Tensor post = hidden_linear(ctx, "mlp", x, w.W_in, config.activation);                 // [T, F]
  const Tensor out = linear(ctx, dropout(ctx, post, config.dropout, site(kHidden)), w.W_out);  // [T, D]
  return ctx.hook("hook_mlp_out", dropout(ctx, out, config.dropout, site(kMlp)));
}

Tensor ClassicDecoder::block_norms_before(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const ClassicBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);
  auto frame = ctx.frame(resid_pre);                  // its scratch and input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]
  const Tensor attn_out = attend(ctx, step, layer, layer_norm(ctx, "ln1", resid_pre, w.ln1_w, w.ln1_b, config.norm));
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D]
  const Tensor mlp_out = mlp(ctx, layer, layer_norm(ctx, "ln2", resid_mid, w.ln2_w, w.ln2_b, config.norm));
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D]
}

Tensor ClassicDecoder::block_norms_after(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const ClassicBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);
  auto frame = ctx.frame(resid_pre);
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);                              // [T, D]
  const Tensor first = add(ctx, resid_pre, attend(ctx, step, layer, resid_pre));  // [T, D]
  const Tensor resid_mid = ctx.hook("hook_resid_mid", layer_norm(ctx, "ln1", first, w.ln1_w, w.ln1_b, config.norm));
  const Tensor second = add(ctx, resid_mid, mlp(ctx, layer, resid_mid));  // [T, D]
  return frame.keep(ctx.hook("hook_resid_post", layer_norm(ctx, "ln2", second, w.ln2_w, w.ln2_b, config.norm)));
}

Tensor ClassicDecoder::residual(Context& ctx, const Step& step) const {
  const ClassicConfig& c = config;
  ctx.enter(step);
  Tensor tokens = embed(ctx, step.tokens(), W_E);  // [T, D]
  if (c.scale_embedding) tokens = scale(ctx, tokens, embedding_scale());
  tokens = ctx.hook("hook_embed", tokens);
  const Tensor positions = ctx.hook("hook_pos_embed", sinusoidal_positions(ctx, step, c.d_model, c.positions));
  Tensor x = dropout(ctx, add(ctx, tokens, positions), c.dropout, static_cast<uint32_t>(c.n_layers) * 4);
  const auto block = c.norms_before ? &ClassicDecoder::block_norms_before : &ClassicDecoder::block_norms_after;
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(block, *this, step, layer, x);
  return c.norms_before ? layer_norm(ctx, "ln_final", x, ln_final_w, ln_final_b, c.norm) : x;  // [T, D]
}

std::vector<CacheLayer> ClassicDecoder::cache_layers() const {
  const int64_t head_dim = config.d_model / config.n_heads;
  return std::vector<CacheLayer>(static_cast<size_t>(config.n_layers), {kNoWindow, config.n_heads, head_dim, head_dim});
}

ModelShape ClassicDecoder::shape() const {
  const ClassicConfig& c = config;
  return {"classic_decoder", c.d_model,        c.n_layers, c.n_heads,        c.n_heads, c.d_model / c.n_heads, c.d_ff,
          c.vocab_size,      c.context_length, c.tied,     embedding_scale()};
}

BlockSpec ClassicDecoder::block_spec(int64_t layer) const {
  return {.attention = attention_spec(layer),
          .rope = {},
          .norm = config.norm,
          .rms = false,
          .norms_after = !config.norms_before,
          .activation = config.activation};
}

std::vector<std::string> ClassicDecoder::hook_names() const {
  return hook_names_of(
      {.n_layers = config.n_layers, .positions = true, .norms_after = !config.norms_before, .final_norm = config.norms_before});
}

void ClassicDecoder::tensors(TensorTable& table) {
  const ClassicConfig& c = config;
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  table.matrix(W_E, {"W_E", "embed.weight", "", V, D});
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    ClassicBlock& w = blocks[static_cast<size_t>(layer)];
    const auto line = [&](const char* ours, const char* file, Dim out, Dim in = {}, int part = 0, int parts = 1) {
      return TensorLine{at_layer(std::string("blocks.{}.") + ours, layer),
                        at_layer(std::string("blocks.{}.") + file, layer),
                        "",
                        out,
                        in,
                        false,
                        part,
                        parts};
    };
    Weight* const qkv[] = {&w.W_Q, &w.W_K, &w.W_V};
    const char* const names[] = {"attn.W_Q", "attn.W_K", "attn.W_V"};
    for (int part = 0; part < 3; ++part) table.matrix(*qkv[part], line(names[part], "self_attn.in_proj_weight", D, D, part, 3));
    for (int part = 0; part < 3; ++part)
      table.vector(qkv[part]->bias, line(names[part], "self_attn.in_proj_bias", D, {}, part, 3));
    table.matrix(w.W_O, line("attn.W_O", "self_attn.out_proj.weight", D, D));
    table.vector(w.W_O.bias, line("attn.b_O", "self_attn.out_proj.bias", D));
    table.vector(w.ln1_w, line("ln1.w", "norm1.weight", D));
    table.vector(w.ln1_b, line("ln1.b", "norm1.bias", D));
    table.matrix(w.W_in, line("mlp.W_in", "linear1.weight", F, D));
    table.vector(w.W_in.bias, line("mlp.b_in", "linear1.bias", F));
    table.matrix(w.W_out, line("mlp.W_out", "linear2.weight", D, F));
    table.vector(w.W_out.bias, line("mlp.b_out", "linear2.bias", D));
    table.vector(w.ln2_w, line("ln2.w", "norm2.weight", D));
    table.vector(w.ln2_b, line("ln2.b", "norm2.bias", D));
  }
  if (c.norms_before) table.vector(ln_final_w, {"ln_final.w", "final_norm.weight", "", D});
  if (c.norms_before) table.vector(ln_final_b, {"ln_final.b", "final_norm.bias", "", D});
  if (!c.tied) table.matrix(W_U, {"W_U", "unembed.weight", "", V, D});
  table.vector((c.tied ? W_E : W_U).bias, {"b_U", "unembed.bias", "", V});
}

ClassicConfig read(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  ClassicConfig c{};
  c.d_model = keys.positive("d_model");
  c.n_layers = read_layers(keys, "n_layers");
  c.n_heads = keys.positive("n_heads");
  c.d_ff = keys.positive("d_ff");
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.count("context_length", {}, 0);
  const auto choice = [&](const char* key, const char* yes, const char* no, const char* fallback) {
    const std::string value = keys.string(key, {}, fallback);
    if (value != yes && value != no) keys.fail(key, std::string("is not known; expected ") + yes + " or " + no);
    return value == yes;
  };
  c.norms_before = choice("norm_order", "pre", "post", "pre");
  c.scale_embedding = choice("embedding_scale", "sqrt(d_model)", "none", "sqrt(d_model)");
  choice("positions", "sinusoidal", "sinusoidal", "sinusoidal");
  c.positions = choice("position_layout", "pairs", "halves", "pairs") ? SinusoidLayout::pairs : SinusoidLayout::halves;
  c.norm = {.eps = read_eps(config, "layer_norm_eps", "", 1e-5)};
  c.activation = read_activation(keys, "activation", {}, "relu");
  c.dropout = read_dropout(keys, "dropout", 0.0);
  c.tied = keys.flag("tied", {"tie_word_embeddings"}, false);
  if (c.d_model % c.n_heads != 0) keys.fail("n_heads", "does not divide d_model (" + std::to_string(c.d_model) + ")");
  return c;
}

}  // namespace

std::unique_ptr<Model> make_classic_decoder(const ModelConfig& config) { return std::make_unique<ClassicDecoder>(read(config)); }

}  // namespace vitrine
