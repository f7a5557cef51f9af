// GPT-2. Learned positions, LayerNorm with weight and bias before each sub-layer, full attention, a two-layer MLP with
// GELU, tied output without bias. Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.3;
// the same text is GPT-3's at its sizes.
// T rows of the step (sequences one after the other), N n_heads, H head_dim, D d_model, F d_ff, V vocab_size, C context.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "ops/elementwise.h"
#include "ops/embed.h"

namespace vitrine {
namespace {

struct Gpt2Config : ModelShape {
  NormSpec norm = {};
  Activation activation = Activation::none;
  bool scale_scores = true, scale_by_layer = false;
  double embd_dropout = 0, attn_dropout = 0, resid_dropout = 0;
};

struct Gpt2Block {
  LayerNorm ln1{{"ln1", "ln_1", "attn_norm"}};  // [D]
  Attention attn;                               // W_Q, W_K, W_V: thirds of the file's c_attn; W_O. All [D, D] + bias [D]
  LayerNorm ln2{{"ln2", "ln_2", "ffn_norm"}};   // [D]
  Mlp mlp;                                      // W_in [F, D] + bias [F], W_out [D, F] + bias [D]
};

// Where dropout acts; a layer's sites are four apart.
enum Gpt2Site : uint32_t { kGpt2Pattern, kGpt2Attention, kGpt2Mlp, kGpt2Embedding };
uint32_t gpt2_site(Gpt2Site site, int64_t layer) { return site + static_cast<uint32_t>(layer) * 4; }

class Gpt2 final : public Decoder {
 public:
  explicit Gpt2(const Gpt2Config& c);
  Tensor embedded(Context& ctx, const Step& step) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  AttentionSpec attention_spec(int64_t layer) const;

  const Gpt2Config c;
  Weight W_pos;  // [C, D]
  std::vector<Gpt2Block> blocks;
  LayerNorm ln_final{{"ln_final", "transformer.ln_f", "output_norm"}};  // [D]
};

Tensor Gpt2::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Gpt2Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);     // [T, D] #norm
  const auto [q, k, v] = w.attn.qkv(ctx, x);  // [T, N, H] each; hooks attn.hook_q, _k, _v #attention
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.resid_dropout, gpt2_site(kGpt2Attention, layer)));
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  Tensor mlp_out = w.mlp(ctx, y);          // gelu(y W_inᵀ + b_in) W_outᵀ + b_out, [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.resid_dropout, gpt2_site(kGpt2Mlp, layer)));
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec Gpt2::attention_spec(int64_t layer) const {
  const double scale = c.scale_scores ? 1 / std::sqrt(static_cast<double>(c.head_dim)) : 1.0;  // #scale
  return {.scale = scale / (c.scale_by_layer ? static_cast<double>(layer + 1) : 1.0),
          .dropout = c.attn_dropout,
          .dropout_site = gpt2_site(kGpt2Pattern, layer)};
}

Tensor Gpt2::embedded(Context& ctx, const Step& step) const {
  const Tensor tokens = ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));            // [T, D] #embed
  const Tensor positions = ctx.hook("hook_pos_embed", embed_positions(ctx, step, W_pos));  // [T, D] #positions
  return dropout(ctx, add(ctx, tokens, positions), c.embd_dropout, kGpt2Embedding);
}

Gpt2::Gpt2(const Gpt2Config& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation});
  const auto& [D, F, V, H, NH, GH] = list.size;
  const StoredLayout columns{.by_columns = true};
  list.add(W_E, "W_E", "transformer.wte.weight", "token_embd.weight", V, D);
  list.add(W_pos, "W_pos", "transformer.wpe.weight", "position_embd.weight", {"context_length", c.context_length}, D);
  for (Gpt2Block& w : blocks) {
    list.begin_layer("transformer.h.");
    list.add(w.ln1);
    list.add_stacked_qkv(w.attn, {"attn.c_attn.weight", "attn_qkv.weight"}, {"attn.c_attn.bias", "attn_qkv.bias"}, true);
    list.add_with_bias(w.attn.W_O, "attn.O", "attn.c_proj", "attn_output", D, D, columns);
    list.add(w.ln2);
    list.add(w.mlp, {.huggingface = "mlp.c_fc", .gguf = "ffn_up"}, {.huggingface = "mlp.c_proj", .gguf = "ffn_down"}, columns);
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_gpt2(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Gpt2Config c{{.family = "gpt2"}};
  c.d_model = keys.positive("n_embd", {"hidden_size", "embedding_length"});
  c.n_layers = read_layers(keys, "n_layer", {"num_hidden_layers", "block_count"});
  c.n_heads = keys.positive("n_head", {"num_attention_heads", "attention.head_count"});
  c.d_ff = keys.find_positive("n_inner", {"feed_forward_length"}).value_or(4 * c.d_model);
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("n_positions", {"max_position_embeddings", "context_length"});
  c.norm = {.eps = read_eps(config, "layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-5)};
  c.activation = read_activation(keys, "activation_function", {}, "gelu_new");
  c.scale_scores = keys.flag("scale_attn_weights", {}, true);
  c.scale_by_layer = keys.flag("scale_attn_by_inverse_layer_idx", {}, false);
  c.tied = keys.flag("tie_word_embeddings", {}, true);
  const double dropout = config.gguf ? 0.0 : 0.1;  // GGUF has no word for it
  c.embd_dropout = read_dropout(keys, "embd_pdrop", dropout);
  c.attn_dropout = read_dropout(keys, "attn_pdrop", dropout);
  c.resid_dropout = read_dropout(keys, "resid_pdrop", dropout);
  if (c.d_model % c.n_heads != 0) keys.fail("n_head", "does not divide n_embd (" + std::to_string(c.d_model) + ")");
  c.set_heads(c.n_heads, c.d_model / c.n_heads);
  refuse_flags(keys, {"add_cross_attention"});
  return std::make_unique<Gpt2>(c);
}

Json Gpt2::config(ConfigFormat format) const {
  if (format == ConfigFormat::gguf) return write_gguf_sizes(c, "attention.layer_norm_epsilon", c.norm.eps);
  return {{"model_type", "gpt2"},
          {"n_embd", c.d_model},
          {"n_layer", c.n_layers},
          {"n_head", c.n_heads},
          {"n_inner", c.d_ff},
          {"vocab_size", c.vocab_size},
          {"n_positions", c.context_length},
          {"layer_norm_epsilon", shortest(c.norm.eps)},
          {"activation_function", c.activation == Activation::gelu_tanh ? "gelu_new" : activation_key(c.activation)},
          {"embd_pdrop", c.embd_dropout},
          {"attn_pdrop", c.attn_dropout},
          {"resid_pdrop", c.resid_dropout},
          {"scale_attn_weights", c.scale_scores},
          {"scale_attn_by_inverse_layer_idx", c.scale_by_layer},
          {"tie_word_embeddings", c.tied}};
}

}  // namespace

Family gpt2_family() {
  return {.name = "gpt2",
          .gguf = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .title = "GPT-2",
          .paper = "Radford et al., Language models are unsupervised multitask learners, 2019",
          .source = "src/engine/model/gpt2.cpp",
          .make = read_gpt2,
          .optional_prefixes = {"transformer."},
          .ignored_suffixes = {".attn.bias", ".attn.masked_bias", "lm_head.weight"},
          .dropout = {.embedding = "embd_pdrop", .attention = "attn_pdrop", .residual = "resid_pdrop"},
          .scales_residual_init = true};
}

}  // namespace vitrine
