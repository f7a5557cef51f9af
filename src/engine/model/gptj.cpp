// GPT-J. One LayerNorm, whose result both attention and MLP read; both are added to the stream; neighboring components of a
// part of each head are rotated together; no biases around attention, one at the output. Wang and Komatsuzaki, "GPT-J-6B: a 6
// billion parameter autoregressive language model", 2021. T rows of the step (sequences one after the other), N n_heads, H
// head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct GptJConfig : ModelShape {
  NormSpec norm = {};
  RopeSpec rope = {};
  Activation activation = Activation::none;
  double embd_dropout = 0, attn_dropout = 0, resid_dropout = 0;
};

struct GptJBlock {
  LayerNorm ln1{{.ours = "ln1", .huggingface = "ln_1"}};  // [D]
  Attention attn;                                         // W_Q, W_K, W_V, W_O [D, D]
  Mlp mlp;                                                // W_in [F, D] + bias [F], W_out [D, F] + bias [D]
};

// Where dropout acts; a layer's sites are four apart.
enum GptJSite : uint32_t { kGptJPattern, kGptJAttention, kGptJMlp, kGptJEmbedding };
uint32_t gptj_site(GptJSite site, int64_t layer) { return site + static_cast<uint32_t>(layer) * 4; }

class GptJ final : public Decoder {
 public:
  explicit GptJ(const GptJConfig& c);
  Tensor embedded(Context& ctx, const Step& step) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  AttentionSpec attention_spec(int64_t layer) const;

  const GptJConfig c;
  std::vector<GptJBlock> blocks;
  LayerNorm ln_final{{.ours = "ln_final", .huggingface = "transformer.ln_f"}};  // [D]
};

Tensor GptJ::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const GptJBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);                                                // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);                                                   // [T, N, H] each #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.resid_dropout, gptj_site(kGptJAttention, layer)));

  // The same norm once more, so that what the MLP reads has hooks of its own, as in TransformerLens.
  const Tensor y = layer_norm(ctx, "ln2", resid_pre, w.ln1.w, w.ln1.b, c.norm);  // [T, D] #norm
  Tensor mlp_out = w.mlp(ctx, y);  // gelu(y W_inᵀ + b_in) W_outᵀ + b_out, [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.resid_dropout, gptj_site(kGptJMlp, layer)));
  const Tensor both = add(ctx, attn_out, mlp_out);                            // [T, D] #residual
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_pre, both)));  // [T, D] #residual
}

AttentionSpec GptJ::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .dropout = c.attn_dropout,
          .dropout_site = gptj_site(kGptJPattern, layer)};
}

Tensor GptJ::embedded(Context& ctx, const Step& step) const {
  const Tensor tokens = ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
  return dropout(ctx, tokens, c.embd_dropout, kGptJEmbedding);
}

GptJ::GptJ(const GptJConfig& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation});
  const auto& [D, F, V, H, NH, GH] = list.size;
  list.add(W_E, "W_E", "transformer.wte.weight", "", V, D);
  for (GptJBlock& w : blocks) {
    list.begin_layer("transformer.h.");
    list.add(w.ln1);
    w.attn.head_dim = c.head_dim;
    list.add(w.attn.W_Q, "attn.W_Q", "attn.q_proj.weight", "", NH, D);
    list.add(w.attn.W_K, "attn.W_K", "attn.k_proj.weight", "", NH, D);
    list.add(w.attn.W_V, "attn.W_V", "attn.v_proj.weight", "", NH, D);
    list.add(w.attn.W_O, "attn.W_O", "attn.out_proj.weight", "", D, NH);
    list.add(w.mlp, {"mlp.fc_in", ""}, {"mlp.fc_out", ""});
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "", V, D);
  list.add((c.tied ? W_E : W_U).bias, "b_U", "lm_head.bias", "", V);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_gptj(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  GptJConfig c{{.family = "gptj"}};
  c.d_model = keys.positive("n_embd", {"hidden_size"});
  c.n_layers = read_layers(keys, "n_layer", {"num_hidden_layers"});
  c.n_heads = keys.positive("n_head", {"num_attention_heads"});
  c.d_ff = keys.find_positive("n_inner").value_or(4 * c.d_model);
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("n_positions", {"max_position_embeddings"}, 2048);
  c.norm = {.eps = read_eps(config, "layer_norm_epsilon", "", 1e-5)};
  c.activation = read_activation(keys, "activation_function", {}, "gelu_new");
  c.tied = keys.flag("tie_word_embeddings", {}, false);
  c.embd_dropout = read_dropout(keys, "embd_pdrop", 0.0);
  c.attn_dropout = read_dropout(keys, "attn_pdrop", 0.0);
  c.resid_dropout = read_dropout(keys, "resid_pdrop", 0.0);
  if (c.d_model % c.n_heads != 0) keys.fail("n_head", "does not divide n_embd (" + std::to_string(c.d_model) + ")");
  c.set_heads(c.n_heads, c.d_model / c.n_heads);
  if (keys.mentions("rotary_dim") && !keys.has("rotary_dim"))
    keys.fail("rotary_dim", "is not supported; expected the number of components of a head that are rotated");
  c.rope = {.theta = 10000, .rotary_dim = keys.positive("rotary_dim", {}, 64), .layout = RopeLayout::pairs};
  if (c.rope.rotary_dim % 2 != 0 || c.rope.rotary_dim > c.head_dim)
    keys.fail("rotary_dim", "must be even and at most n_embd / n_head (" + std::to_string(c.head_dim) + ")");
  // Of older files: how positions are given, and settings of other programs.
  keys.ignore({"rotary", "scale_attn_weights", "gradient_checkpointing"});
  return std::make_unique<GptJ>(c);
}

Json GptJ::config(ConfigFormat) const {
  return {{"model_type", "gptj"},
          {"n_embd", c.d_model},
          {"n_layer", c.n_layers},
          {"n_head", c.n_heads},
          {"n_inner", c.d_ff},
          {"vocab_size", c.vocab_size},
          {"n_positions", c.context_length},
          {"rotary_dim", c.rope.rotary_dim},
          {"layer_norm_epsilon", shortest(c.norm.eps)},
          {"activation_function", c.activation == Activation::gelu_tanh ? "gelu_new" : activation_key(c.activation)},
          {"embd_pdrop", c.embd_dropout},
          {"attn_pdrop", c.attn_dropout},
          {"resid_pdrop", c.resid_dropout},
          {"tie_word_embeddings", c.tied}};
}

}  // namespace

Family gptj_family() {
  return {.name = "gptj",
          .architecture = "GPTJForCausalLM",
          .title = "GPT-J",
          .paper = "Wang and Komatsuzaki, GPT-J-6B: a 6 billion parameter autoregressive language model, 2021",
          .source = "src/engine/model/gptj.cpp",
          .make = read_gptj,
          .optional_prefixes = {"transformer."},
          .ignored_suffixes = {".attn.bias", ".attn.masked_bias", "lm_head.weight"},
          .dropout = {.embedding = "embd_pdrop", .attention = "attn_pdrop", .residual = "resid_pdrop"},
          .has_forms = false};
}

}  // namespace vitrine
