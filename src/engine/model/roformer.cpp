// RoFormer. Attention in both directions (is_decoder: causal) with RoPE on queries and keys, on values too where rotary_value
// says so; LayerNorm after each sub-layer; an embedding that may be narrower than the stream; a head for masked tokens. Su et
// al., arXiv:2104.09864; numbers and names as in transformers' models/roformer. T rows of the step (sequences one after the
// other), N n_heads, H head_dim, D d_model, E embedding_size, F d_ff, V vocab_size.
#include <cmath>
#include <vector>

#include "base/error.h"
#include "model/decoder.h"
#include "model/registry.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct RoFormerConfig : ModelShape {
  int64_t embedding_size = 0, token_types = 0;
  bool causal = false, rotary_value = false;
  RopeSpec rope = {};
  NormSpec norm = {};
  Activation activation = Activation::none;
  double hidden_dropout = 0, attn_dropout = 0;
};

struct RoFormerBlock {
  Attention attn;                                                               // W_Q, W_K, W_V, W_O: [D, D] + bias [D]
  LayerNorm ln1{{.ours = "ln1", .huggingface = "attention.output.LayerNorm"}};  // [D]
  Mlp mlp;                                                                      // W_in [F, D] + bias [F], W_out [D, F] + bias [D]
  LayerNorm ln2{{.ours = "ln2", .huggingface = "output.LayerNorm"}};            // [D]
};

// Where dropout acts; a layer's sites are three apart, and the embedding's follows those of the last layer.
enum RoFormerSite : uint32_t { kRoFormerPattern, kRoFormerAttention, kRoFormerMlp };
uint32_t roformer_site(RoFormerSite site, int64_t layer) { return site + static_cast<uint32_t>(layer) * 3; }

class RoFormer final : public Decoder {
 public:
  explicit RoFormer(const RoFormerConfig& c);
  Tensor embedded(Context& ctx, const Step& step) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override;
  AttentionSpec attention_spec(int64_t layer) const;

  const RoFormerConfig c;
  Weight W_type;                                                                             // [token types, E]
  LayerNorm ln_embed{{.ours = "ln_embed", .huggingface = "roformer.embeddings.LayerNorm"}};  // [E]
  Weight W_project;                                                                          // [D, E] + bias [D], if E is not D
  std::vector<RoFormerBlock> blocks;
  Weight W_head;                                                                                     // [E, D] + bias [E]
  LayerNorm ln_head{{.ours = "mlm_head.ln", .huggingface = "cls.predictions.transform.LayerNorm"}};  // [E]
};

// Every token is of type 0.
Tensor RoFormer::embedded(Context& ctx, const Step& step) const {
  const std::vector<int32_t> types(static_cast<size_t>(step.rows()), 0);
  const Tensor tokens = ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));                   // [T, E] #embed
  const Tensor type = ctx.hook("hook_token_type_embed", embed(ctx, types, W_type));               // [T, E] #embed
  Tensor x = ln_embed(ctx, add(ctx, tokens, type));                                               // [T, E] #embed
  x = dropout(ctx, x, c.hidden_dropout, roformer_site(kRoFormerPattern, c.n_layers));             // in training
  if (c.embedding_size != c.d_model) x = ctx.hook("hook_full_embed", linear(ctx, x, W_project));  // [T, D] #embed
  return x;
}

AttentionSpec RoFormer::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .causal = c.causal,                                       // #mask
          .dropout = c.attn_dropout,
          .dropout_site = roformer_site(kRoFormerPattern, layer)};
}

Tensor RoFormer::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const RoFormerBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  auto [q, k, v] = w.attn.qkv(ctx, resid_pre);                                           // [T, N, H] each #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // neighboring components #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  if (c.rotary_value) v = ctx.hook("attn.hook_rot_v", rope(ctx, v, step, c.rope));       // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.hidden_dropout, roformer_site(kRoFormerAttention, layer)));
  const Tensor first = add(ctx, resid_pre, attn_out);                      // [T, D] #residual-after
  const Tensor resid_mid = ctx.hook("hook_resid_mid", w.ln1(ctx, first));  // [T, D] #norm-after

  Tensor mlp_out = w.mlp(ctx, resid_mid);  // f(x W_inᵀ + b_in) W_outᵀ + b_out, [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.hidden_dropout, roformer_site(kRoFormerMlp, layer)));
  const Tensor second = add(ctx, resid_mid, mlp_out);                  // [T, D] #residual-after
  return frame.keep(ctx.hook("hook_resid_post", w.ln2(ctx, second)));  // [T, D] #norm-after
}

// What the head reads is as wide as the embedding: LayerNorm(f(x W_headᵀ + b)).
Tensor RoFormer::final_norm(Context& ctx, const Tensor& x) const {
  return ln_head(ctx, hidden_linear(ctx, "mlm_head", x, W_head, c.activation));  // [T, E] #head
}

RoFormer::RoFormer(const RoFormerConfig& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation});
  const Dim D = list.size.D, V = list.size.V, NH = list.size.NH, E{"embedding_size", c.embedding_size};
  const auto norm_of = [&](LayerNorm& norm, Dim size) {
    list.size.D = size;
    list.add(norm);
    list.size.D = D;
  };
  list.add(W_E, "W_E", "roformer.embeddings.word_embeddings.weight", "", V, E);
  list.add(W_type, "W_type", "roformer.embeddings.token_type_embeddings.weight", "", {"type_vocab_size", c.token_types}, E);
  norm_of(ln_embed, E);
  if (c.embedding_size != c.d_model) list.add_with_bias(W_project, "project", "roformer.embeddings_project", "", D, E);
  for (RoFormerBlock& w : blocks) {
    list.begin_layer("roformer.encoder.layer.");
    w.attn.head_dim = c.head_dim;
    list.add_with_bias(w.attn.W_Q, "attn.Q", "attention.self.query", "", NH, D);
    list.add_with_bias(w.attn.W_K, "attn.K", "attention.self.key", "", NH, D);
    list.add_with_bias(w.attn.W_V, "attn.V", "attention.self.value", "", NH, D);
    list.add_with_bias(w.attn.W_O, "attn.O", "attention.output.dense", "", D, NH);
    list.add(w.ln1);
    list.add(w.mlp, {"intermediate.dense", ""}, {"output.dense", ""});
    list.add(w.ln2);
  }
  list.end_layers();
  list.add_with_bias(W_head, "mlm_head.transform", "cls.predictions.transform.dense", "", E, D);
  norm_of(ln_head, E);
  if (!c.tied) list.add(W_U, "W_U", "cls.predictions.decoder.weight", "", V, E);
  list.add((c.tied ? W_E : W_U).bias, "b_U", c.tied ? "cls.predictions.bias" : "cls.predictions.decoder.bias", "", V);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_roformer(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  RoFormerConfig c{{.family = "roformer"}};
  c.d_model = keys.positive("hidden_size", {}, 768);
  c.embedding_size = keys.find_positive("embedding_size").value_or(c.d_model);
  c.n_layers = read_layers(keys, "num_hidden_layers");
  c.n_heads = keys.positive("num_attention_heads");
  c.d_ff = keys.positive("intermediate_size");
  c.vocab_size = keys.positive("vocab_size");
  c.token_types = keys.positive("type_vocab_size", {}, 2);
  c.context_length = keys.positive("max_position_embeddings", {}, 1536);
  c.norm = {.eps = read_eps(config, "layer_norm_eps", "", 1e-12)};
  c.activation = read_activation(keys, "hidden_act", {}, "gelu");
  c.causal = keys.flag("is_decoder", {}, false);
  c.rotary_value = keys.flag("rotary_value", {}, false);
  c.tied = keys.flag("tie_word_embeddings", {}, true);
  c.hidden_dropout = read_dropout(keys, "hidden_dropout_prob", 0.1);
  c.attn_dropout = read_dropout(keys, "attention_probs_dropout_prob", 0.1);
  if (c.d_model % c.n_heads != 0)
    keys.fail("num_attention_heads", "does not divide hidden_size (" + std::to_string(c.d_model) + ")");
  c.set_heads(c.n_heads, c.d_model / c.n_heads);
  if (c.head_dim % 2 != 0)
    keys.fail("num_attention_heads", "makes heads of " + std::to_string(c.head_dim) + " components (hidden_size / " +
                                         "num_attention_heads); RoPE rotates them in pairs, so expected an even number");
  if (const auto padding = keys.find_count("pad_token_id"); padding && *padding >= c.vocab_size)
    keys.fail("pad_token_id", "is outside the vocabulary (0 to " + std::to_string(c.vocab_size - 1) + ")");
  c.rope = {.rotary_dim = c.head_dim, .layout = RopeLayout::pairs};
  refuse_flags(keys, {"add_cross_attention"});
  return std::make_unique<RoFormer>(c);
}

Json RoFormer::config(ConfigFormat format) const {
  VITRINE_CHECK(format == ConfigFormat::huggingface, "RoFormer has no GGUF form");
  return {{"model_type", "roformer"},
          {"hidden_size", c.d_model},
          {"embedding_size", c.embedding_size},
          {"num_hidden_layers", c.n_layers},
          {"num_attention_heads", c.n_heads},
          {"intermediate_size", c.d_ff},
          {"vocab_size", c.vocab_size},
          {"type_vocab_size", c.token_types},
          {"max_position_embeddings", c.context_length},
          {"layer_norm_eps", c.norm.eps},
          {"hidden_act", activation_key(c.activation)},
          {"is_decoder", c.causal},
          {"rotary_value", c.rotary_value},
          {"tie_word_embeddings", c.tied},
          {"hidden_dropout_prob", c.hidden_dropout},
          {"attention_probs_dropout_prob", c.attn_dropout}};
}

}  // namespace

Family roformer_family() {
  return {.name = "roformer",
          .architecture = "RoFormerForMaskedLM",
          .other_architecture = "RoFormerForCausalLM",
          .title = "RoFormer",
          .paper = "arXiv:2104.09864",
          .source = "src/engine/model/roformer.cpp",
          .make = read_roformer,
          .head = "cls.predictions.decoder.weight",
          .optional_prefixes = {"roformer."},
          // The table of sines is computed; the decoder's copies are the embedding and its bias, or else the bias is the copy.
          .ignored_suffixes = {".embed_positions.weight", "embeddings.position_ids", "cls.predictions.decoder.weight",
                               "cls.predictions.decoder.bias", "cls.predictions.bias"},
          .dropout = {.embedding = "hidden_dropout_prob",
                      .attention = "attention_probs_dropout_prob",
                      .residual = "hidden_dropout_prob"},
          .norms = Form::Norms::post,
          .has_forms = false,
          .last_hidden_is_normed = false,
          .scores_sequences = false};
}

}  // namespace vitrine
