// GPT-2. Learned positions, LayerNorm with weight and bias before each sub-layer, full attention, a two-layer MLP with
// GELU, tied output without bias. Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.3;
// the same text is GPT-3's at its sizes.
// T rows of the step (sequences one after the other), N n_heads, H head_dim, D d_model, F d_ff, V vocab_size, C context.
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

struct Gpt2Config {
  int64_t d_model, n_layers, n_heads, d_ff, vocab_size, context_length;
  NormSpec norm;
  BlockForm form;
  Activation activation;
  bool scale_scores, scale_by_layer, tied;
  double embd_dropout, attn_dropout, resid_dropout;
};

struct Gpt2Block {
  Vector ln1_w, ln1_b, ln2_w, ln2_b;  // [D]
  Weight W_Q, W_K, W_V;               // [D, D] + bias [D]: thirds of the file's c_attn
  Weight W_O;                         // [D, D] + bias [D]
  Weight W_in;                        // [F, D] + bias [F]
  Weight W_out;                       // [D, F] + bias [D]
};

// Where dropout acts; a layer's sites are four apart.
enum Site : uint32_t { kPattern, kAttention, kMlp, kEmbedding };
uint32_t site_of(Site site, int64_t layer) { return site + static_cast<uint32_t>(layer) * 4; }

class Gpt2 final : public Model {
 public:
  explicit Gpt2(const Gpt2Config& c) : config(c), blocks(static_cast<size_t>(c.n_layers)) {}
  Tensor residual(Context& ctx, const Step& step) const override;
  Head head() const override { return {config.tied ? &W_E : &W_U, 0}; }
  void tensors(TensorTable& table) override;
  std::vector<CacheLayer> cache_layers() const override;
  ModelShape shape() const override;
  BlockSpec block_spec(int64_t layer) const override;
  std::vector<std::string> hook_names() const override;

 private:
  AttentionSpec attention_spec(int64_t layer) const;
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;

  Gpt2Config config;
  Weight W_E;    // [V, D]
  Weight W_pos;  // [C, D]
  Weight W_U;    // [V, D], if it is not the embedding
  std::vector<Gpt2Block> blocks;
  Vector ln_final_w, ln_final_b;  // [D]
};

AttentionSpec Gpt2::attention_spec(int64_t layer) const {
  const Gpt2Config& c = config;
  const auto head_dim = static_cast<double>(c.d_model / c.n_heads);
  AttentionSpec spec;
  spec.scale = (c.scale_scores ? 1 / std::sqrt(head_dim) : 1.0) / (c.scale_by_layer ? static_cast<double>(layer + 1) : 1.0);
  spec.dropout = c.attn_dropout;
  spec.dropout_site = site_of(kPattern, layer);
  return spec;
}

Tensor Gpt2::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Gpt2Config& c = config;
  const Gpt2Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);
  auto frame = ctx.frame(resid_pre);  // this block's scratch and its input end here
  const int64_t head_dim = c.d_model / c.n_heads;
  const auto site = [&](Site s) { return site_of(s, layer); };
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = c.form.norms_before ? layer_norm(ctx, "ln1", resid_pre, w.ln1_w, w.ln1_b, c.norm) : resid_pre;  // [T, D]
  auto [q, k, v] = linear(ctx, x, {w.W_Q, w.W_K, w.W_V});
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, head_dim));  // [T, N, H]
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, head_dim));  // [T, N, H]
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, head_dim));  // [T, N, H]

  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H]
  Tensor attn_out = attention_output(ctx, "attn", z, w.W_O);                             // [T, D]
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.resid_dropout, site(kAttention)));
  Tensor resid_mid = c.form.residual ? add(ctx, resid_pre, attn_out) : attn_out;  // [T, D]
  if (c.form.norms_after) resid_mid = layer_norm(ctx, "ln1", resid_mid, w.ln1_w, w.ln1_b, c.norm);
  resid_mid = ctx.hook("hook_resid_mid", resid_mid);

  const Tensor y = c.form.norms_before ? layer_norm(ctx, "ln2", resid_mid, w.ln2_w, w.ln2_b, c.norm) : resid_mid;  // [T, D]
  Tensor mlp_out = mlp(ctx, "mlp", y, w.W_in, w.W_out, c.activation);                                              // [T, D]
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.resid_dropout, site(kMlp)));
  Tensor resid_post = c.form.residual ? add(ctx, resid_mid, mlp_out) : mlp_out;  // [T, D]
  if (c.form.norms_after) resid_post = layer_norm(ctx, "ln2", resid_post, w.ln2_w, w.ln2_b, c.norm);
  return frame.keep(ctx.hook("hook_resid_post", resid_post));
}

Tensor Gpt2::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  const Tensor tokens = ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));            // [T, D]
  const Tensor positions = ctx.hook("hook_pos_embed", embed_positions(ctx, step, W_pos));  // [T, D]
  Tensor x = dropout(ctx, add(ctx, tokens, positions), config.embd_dropout, kEmbedding);
  for (int layer = 0; layer < config.n_layers; ++layer) x = ctx.checkpoint(&Gpt2::block, *this, step, layer, x);
  return config.form.final_norm ? layer_norm(ctx, "ln_final", x, ln_final_w, ln_final_b, config.norm) : x;  // [T, D]
}

std::vector<CacheLayer> Gpt2::cache_layers() const {
  const int64_t head_dim = config.d_model / config.n_heads;
  return std::vector<CacheLayer>(static_cast<size_t>(config.n_layers), {kNoWindow, config.n_heads, head_dim, head_dim});
}

ModelShape Gpt2::shape() const {
  const Gpt2Config& c = config;
  return {"gpt2", c.d_model,    c.n_layers,       c.n_heads, c.n_heads, c.d_model / c.n_heads,
          c.d_ff, c.vocab_size, c.context_length, c.tied};
}

BlockSpec Gpt2::block_spec(int64_t layer) const {
  return {.attention = attention_spec(layer),
          .rope = {},
          .norm = config.norm,
          .rms = false,
          .norms_after = config.form.norms_after,
          .activation = config.activation};
}

std::vector<std::string> Gpt2::hook_names() const {
  return hook_names_of({.n_layers = config.n_layers,
                        .positions = true,
                        .norms = config.form.norms(),
                        .norms_after = config.form.norms_after,
                        .final_norm = config.form.final_norm});
}

void Gpt2::tensors(TensorTable& table) {
  const Gpt2Config& c = config;
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size}, C{"context_length", c.context_length};
  table.matrix(W_E, {"W_E", "transformer.wte.weight", "token_embd.weight", V, D});
  table.matrix(W_pos, {"W_pos", "transformer.wpe.weight", "position_embd.weight", C, D});
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    Gpt2Block& w = blocks[static_cast<size_t>(layer)];
    const auto line = [&](const char* ours, const char* huggingface, const char* gguf, Dim out, Dim in = {}, int part = 0,
                          int parts = 1) {
      return TensorLine{at_layer(std::string("blocks.{}.") + ours, layer),
                        at_layer(std::string("transformer.h.{}.") + huggingface, layer),
                        at_layer(std::string("blk.{}.") + gguf, layer),
                        out,
                        in,
                        in.size != 0,
                        part,
                        parts};  // stored [in, out]
    };
    if (c.form.norms()) table.vector(w.ln1_w, line("ln1.w", "ln_1.weight", "attn_norm.weight", D));
    if (c.form.norms()) table.vector(w.ln1_b, line("ln1.b", "ln_1.bias", "attn_norm.bias", D));
    Weight* const qkv[] = {&w.W_Q, &w.W_K, &w.W_V};
    const char* const names[] = {"attn.W_Q", "attn.W_K", "attn.W_V"};
    for (int part = 0; part < 3; ++part)
      table.matrix(*qkv[part], line(names[part], "attn.c_attn.weight", "attn_qkv.weight", D, D, part, 3));
    for (int part = 0; part < 3; ++part)
      table.vector(qkv[part]->bias, line(names[part], "attn.c_attn.bias", "attn_qkv.bias", D, {}, part, 3));
    table.matrix(w.W_O, line("attn.W_O", "attn.c_proj.weight", "attn_output.weight", D, D));
    table.vector(w.W_O.bias, line("attn.b_O", "attn.c_proj.bias", "attn_output.bias", D));
    if (c.form.norms()) table.vector(w.ln2_w, line("ln2.w", "ln_2.weight", "ffn_norm.weight", D));
    if (c.form.norms()) table.vector(w.ln2_b, line("ln2.b", "ln_2.bias", "ffn_norm.bias", D));
    table.matrix(w.W_in, line("mlp.W_in", "mlp.c_fc.weight", "ffn_up.weight", F, D));
    table.vector(w.W_in.bias, line("mlp.b_in", "mlp.c_fc.bias", "ffn_up.bias", F));
    table.matrix(w.W_out, line("mlp.W_out", "mlp.c_proj.weight", "ffn_down.weight", D, F));
    table.vector(w.W_out.bias, line("mlp.b_out", "mlp.c_proj.bias", "ffn_down.bias", D));
  }
  if (c.form.final_norm) table.vector(ln_final_w, {"ln_final.w", "transformer.ln_f.weight", "output_norm.weight", D});
  if (c.form.final_norm) table.vector(ln_final_b, {"ln_final.b", "transformer.ln_f.bias", "output_norm.bias", D});
  if (!c.tied) table.matrix(W_U, {"W_U", "lm_head.weight", "output.weight", V, D});
}

Gpt2Config read(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Gpt2Config c{};
  c.d_model = keys.positive("n_embd", {"hidden_size", "embedding_length"});
  c.n_layers = read_layers(keys, "n_layer", {"num_hidden_layers", "block_count"});
  c.n_heads = keys.positive("n_head", {"num_attention_heads", "attention.head_count"});
  c.d_ff = keys.find_positive("n_inner", {"feed_forward_length"}).value_or(4 * c.d_model);
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("n_positions", {"max_position_embeddings", "context_length"});
  c.norm = {.eps = read_eps(config, "layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-5)};
  c.form = read_block_form(config);
  c.activation = read_activation(keys, "activation_function", {}, "gelu_new");
  c.scale_scores = keys.flag("scale_attn_weights", {}, true);
  c.scale_by_layer = keys.flag("scale_attn_by_inverse_layer_idx", {}, false);
  c.tied = keys.flag("tie_word_embeddings", {}, true);
  const double dropout = config.gguf ? 0.0 : 0.1;  // GGUF has no word for it
  c.embd_dropout = read_dropout(keys, "embd_pdrop", dropout);
  c.attn_dropout = read_dropout(keys, "attn_pdrop", dropout);
  c.resid_dropout = read_dropout(keys, "resid_pdrop", dropout);
  if (c.d_model % c.n_heads != 0) keys.fail("n_head", "does not divide n_embd (" + std::to_string(c.d_model) + ")");
  refuse_flags(keys, {"add_cross_attention"});
  keys.ignore({"reorder_and_upcast_attn", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
               "summary_use_proj"});  // the first asks for f32 scores, which ours always are; the others are of another head
  return c;
}

}  // namespace

std::unique_ptr<Model> make_gpt2(const ModelConfig& config) { return std::make_unique<Gpt2>(read(config)); }

}  // namespace vitrine
