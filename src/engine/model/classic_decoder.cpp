// The classic decoder: sinusoidal positions, full attention with biases, LayerNorm with weight and bias before or after each
// sub-layer, a two-layer MLP with GELU or ReLU. Vaswani et al., arXiv:1706.03762, section 3 (norms after: figure 1; norms
// before: Xiong et al., arXiv:2002.04745). Tensor names are those of PyTorch's TransformerEncoderLayer.
// T rows of the step (sequences one after the other), N n_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "base/error.h"
#include "model/decoder.h"
#include "model/registry.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"

namespace vitrine {
namespace {

struct ClassicConfig : ModelShape {
  bool norms_before = true, scale_embedding = true;
  SinusoidLayout positions = SinusoidLayout::pairs;
  NormSpec norm;
  Activation activation = Activation::none;
  double dropout = 0;
};

struct ClassicBlock {
  Attention attn;  // W_Q, W_K, W_V: thirds of the file's in_proj; W_O. All [D, D] + bias [D]
  LayerNorm ln1{{.ours = "ln1", .huggingface = "norm1"}};  // [D]
  Mlp mlp;                                                 // W_in [F, D] + bias [F], W_out [D, F] + bias [D]
  LayerNorm ln2{{.ours = "ln2", .huggingface = "norm2"}};  // [D]
};

// Where dropout acts; a layer's sites are four apart.
enum ClassicSite : uint32_t { kClassicPattern, kClassicAttention, kClassicHidden, kClassicMlp };

class ClassicDecoder final : public Decoder {
 public:
  explicit ClassicDecoder(const ClassicConfig& c);
  Tensor embedded(Context& ctx, const Step& step) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor block_norms_before(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  Tensor block_norms_after(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return c.norms_before ? ln_final(ctx, x) : x; }
  AttentionSpec attention_spec(int64_t layer) const;
  Tensor attend(Context& ctx, const Step& step, int layer, const Tensor& x) const;
  Tensor mlp(Context& ctx, int layer, const Tensor& x) const;

  const ClassicConfig c;
  std::vector<ClassicBlock> blocks;
  LayerNorm ln_final{{.ours = "ln_final", .huggingface = "final_norm"}};  // [D], with norms before
};

AttentionSpec ClassicDecoder::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .dropout = c.dropout,
          .dropout_site = static_cast<uint32_t>(layer) * 4 + kClassicPattern};
}

Tensor ClassicDecoder::attend(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  const ClassicBlock& w = blocks[static_cast<size_t>(layer)];
  const auto [q, k, v] = w.attn.qkv(ctx, x);  // [T, N, H] each; hooks attn.hook_q, _k, _v #attention
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  const Tensor out = w.attn.out(ctx, z);                                                 // [T, D] #attention
  return ctx.hook("hook_attn_out", dropout(ctx, out, c.dropout, static_cast<uint32_t>(layer) * 4 + kClassicAttention));
}

Tensor ClassicDecoder::mlp(Context& ctx, int layer, const Tensor& x) const {
  const Mlp& w = blocks[static_cast<size_t>(layer)].mlp;
  const auto site = [&](ClassicSite s) { return static_cast<uint32_t>(layer) * 4 + s; };
  const Tensor post = hidden_linear(ctx, "mlp", x, w.W_in, w.f);                                 // [T, F] #mlp
  const Tensor out = linear(ctx, dropout(ctx, post, c.dropout, site(kClassicHidden)), w.W_out);  // [T, D] #mlp
  return ctx.hook("hook_mlp_out", dropout(ctx, out, c.dropout, site(kClassicMlp)));
}

Tensor ClassicDecoder::block_norms_before(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const ClassicBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);
  auto frame = ctx.frame(resid_pre);                                                   // its scratch and input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);                                   // [T, D]
  const Tensor attn_out = attend(ctx, step, layer, w.ln1(ctx, resid_pre));             // #norm
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual
  const Tensor mlp_out = mlp(ctx, layer, w.ln2(ctx, resid_mid));                       // #norm
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));        // [T, D] #residual
}

Tensor ClassicDecoder::block_norms_after(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const ClassicBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);
  auto frame = ctx.frame(resid_pre);
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);                              // [T, D]
  const Tensor first = add(ctx, resid_pre, attend(ctx, step, layer, resid_pre));  // [T, D] #residual-after
  const Tensor resid_mid = ctx.hook("hook_resid_mid", w.ln1(ctx, first));         // #norm-after
  const Tensor second = add(ctx, resid_mid, mlp(ctx, layer, resid_mid));          // [T, D] #residual-after
  return frame.keep(ctx.hook("hook_resid_post", w.ln2(ctx, second)));             // #norm-after
}

Tensor ClassicDecoder::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  return c.norms_before ? block_norms_before(ctx, step, layer, resid_pre) : block_norms_after(ctx, step, layer, resid_pre);
}

Tensor ClassicDecoder::embedded(Context& ctx, const Step& step) const {
  Tensor tokens = embed(ctx, step.tokens(), W_E);                         // [T, D] #embed
  if (c.scale_embedding) tokens = scale(ctx, tokens, c.embedding_scale);  // #embedding-scale
  tokens = ctx.hook("hook_embed", tokens);
  const Tensor positions = ctx.hook("hook_pos_embed", sinusoidal_positions(ctx, step, c.d_model, c.positions));  // #positions
  return dropout(ctx, add(ctx, tokens, positions), c.dropout, static_cast<uint32_t>(c.n_layers) * 4);
}

ClassicDecoder::ClassicDecoder(const ClassicConfig& config)
    : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation});
  const auto& [D, F, V, H, NH, GH] = list.size;
  list.add(W_E, "W_E", "embed.weight", "", V, D);
  for (ClassicBlock& w : blocks) {
    list.begin_layer("blocks.");
    list.add_stacked_qkv(w.attn, {"self_attn.in_proj_weight", ""}, {"self_attn.in_proj_bias", ""}, false);
    list.add_with_bias(w.attn.W_O, "attn.O", "self_attn.out_proj", "", D, D);
    list.add(w.ln1);
    list.add(w.mlp, {"linear1", ""}, {"linear2", ""});
    list.add(w.ln2);
  }
  list.end_layers();
  if (c.norms_before) list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "unembed.weight", "", V, D);
  list.add((c.tied ? W_E : W_U).bias, "b_U", "unembed.bias", "", V);  // the bias of the output
  set_tensors(list.take());
}

std::unique_ptr<Model> read_classic_decoder(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  ClassicConfig c;
  c.family = "classic_decoder";
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
  c.set_heads(c.n_heads, c.d_model / c.n_heads);
  if (c.scale_embedding) c.embedding_scale = std::sqrt(static_cast<double>(c.d_model));
  return std::make_unique<ClassicDecoder>(c);
}

Json ClassicDecoder::config(ConfigFormat format) const {
  VITRINE_CHECK(format == ConfigFormat::huggingface, "the classic decoder has no GGUF form");
  return {{"model_type", "classic_decoder"},
          {"d_model", c.d_model},
          {"n_layers", c.n_layers},
          {"n_heads", c.n_heads},
          {"d_ff", c.d_ff},
          {"vocab_size", c.vocab_size},
          {"context_length", c.context_length},
          {"norm_order", c.norms_before ? "pre" : "post"},
          {"embedding_scale", c.scale_embedding ? "sqrt(d_model)" : "none"},
          {"positions", "sinusoidal"},
          {"position_layout", c.positions == SinusoidLayout::pairs ? "pairs" : "halves"},
          {"layer_norm_eps", c.norm.eps},
          {"activation", c.activation == Activation::gelu_tanh ? "gelu_tanh" : activation_key(c.activation)},
          {"dropout", c.dropout},
          {"tied", c.tied}};
}

}  // namespace

Family classic_decoder_family() {
  return {.name = "classic_decoder",
          .title = "classic decoder",
          .paper = "arXiv:1706.03762",
          .source = "src/engine/model/classic_decoder.cpp",
          .make = read_classic_decoder,
          .optional_prefixes = {},
          .ignored_suffixes = {},
          .dropout = {.embedding = "dropout", .attention = "dropout", .residual = "dropout"},
          .norm_order_key = "norm_order",
          .last_hidden_is_normed = false,
          .scores_sequences = false};
}

}  // namespace vitrine
