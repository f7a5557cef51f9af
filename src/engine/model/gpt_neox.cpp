// GPT-NeoX, the family of Pythia. Attention and MLP read the same residual stream, each through a LayerNorm of its own, and both
// are added to it; a part of each head is rotated; queries, keys and values come from one stored matrix. Black et al.,
// arXiv:2204.06745, section 2; Biderman et al., arXiv:2304.01373.
// T rows of the step (sequences one after the other), N n_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "model/stacked_attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct NeoXConfig : DecoderConfig {
  bool parallel = true;  // false: the MLP reads the stream after attention was added
  bool by_head = true;   // as StackedAttention
  double hidden_dropout = 0;
};

struct NeoXBlock {
  LayerNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  StackedAttention attn;                                           // W_QKV [3·D, D], W_O [D, D]
  LayerNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  Mlp mlp;                                                         // W_in [F, D] + bias [F], W_out [D, F] + bias [D]
};

// Where dropout acts; a layer's sites are four apart.
enum NeoXSite : uint32_t { kNeoXPattern, kNeoXAttention, kNeoXMlp, kNeoXEmbedding };
uint32_t neox_site(NeoXSite site, int64_t layer) { return site + static_cast<uint32_t>(layer) * 4; }

class GptNeoX final : public Decoder, public StacksHeads {
 public:
  explicit GptNeoX(const NeoXConfig& c);
  Tensor embedded(Context& ctx, const Step& step) const override;
  Json config(ConfigFormat format) const override;
  const StackedAttention& stacked_attention(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].attn; }

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  AttentionSpec attention_spec(int64_t layer) const;

  const NeoXConfig c;
  std::vector<NeoXBlock> blocks;
  LayerNorm ln_final{{"ln_final", "gpt_neox.final_layer_norm", "output_norm"}};  // [D]
};

Tensor GptNeoX::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const NeoXBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);                                                // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);                                                   // [T, N, H] each #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.hidden_dropout, neox_site(kNeoXAttention, layer)));
  Tensor resid_mid = add(ctx, resid_pre, attn_out);  // [T, D] #residual
  if (!c.parallel) resid_mid = ctx.hook("hook_resid_mid", resid_mid);

  const Tensor y = w.ln2(ctx, c.parallel ? resid_pre : resid_mid);  // [T, D] #norm
  Tensor mlp_out = w.mlp(ctx, y);                                   // gelu(y W_inᵀ + b_in) W_outᵀ + b_out, [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.hidden_dropout, neox_site(kNeoXMlp, layer)));
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec GptNeoX::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .dropout = c.attn_dropout,
          .dropout_site = neox_site(kNeoXPattern, layer)};
}

Tensor GptNeoX::embedded(Context& ctx, const Step& step) const {
  const Tensor tokens = ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
  return dropout(ctx, tokens, c.hidden_dropout, kNeoXEmbedding);
}

GptNeoX::GptNeoX(const NeoXConfig& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation});
  list.add(W_E, "W_E", "gpt_neox.embed_in.weight", "token_embd.weight", list.size.V, list.size.D);
  for (NeoXBlock& w : blocks) {
    list.begin_layer("gpt_neox.layers.");
    list.add(w.ln1);
    add_stacked(list, w.attn, {"attention.query_key_value", "attn_qkv"}, {"attention.dense", "attn_output"}, c, c.by_head,
                c.qkv_bias);
    list.add(w.ln2);
    list.add(w.mlp, {"mlp.dense_h_to_4h", "ffn_up"}, {"mlp.dense_4h_to_h", "ffn_down"});
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "embed_out.weight", "output.weight", list.size.V, list.size.D);
  set_tensors(list.take());
}

// The names of older files, rotary_pct and rotary_emb_base, are the only ones beside rope_parameters.
RopeSpec read_neox_rope(const ModelConfig& config, NeoXConfig& c) {
  const ConfigReader& keys = config.keys;
  for (const auto& [key, own] : {std::pair{"partial_rotary_factor", "rotary_pct"}, std::pair{"rope_theta", "rotary_emb_base"}})
    if (!config.gguf && keys.has(key)) keys.fail(key, std::string("is not read by this family; expected ") + own);
  const double theta = keys.number("rotary_emb_base", {}, 10000.0), share = keys.number("rotary_pct", {}, 0.25);
  if (!(share > 0 && share <= 1)) keys.fail("rotary_pct", "is no share; expected a number above 0 and up to 1");
  return read_rope(config, c, {.theta = theta, .share = share});
}

std::unique_ptr<Model> read_gpt_neox(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  NeoXConfig c;
  c.family = "gpt_neox";
  c.d_model = keys.positive("hidden_size", {"embedding_length"});
  c.n_layers = read_layers(keys, "num_hidden_layers", {"block_count"});
  c.n_heads = keys.positive("num_attention_heads", {"attention.head_count"});
  c.d_ff = keys.positive("intermediate_size", {"feed_forward_length"});
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("max_position_embeddings", {"context_length"}, 2048);
  if (c.d_model % c.n_heads != 0)
    keys.fail("num_attention_heads", "does not divide hidden_size (" + std::to_string(c.d_model) + ")");
  c.set_heads(c.n_heads, c.d_model / c.n_heads);
  check_product(keys, "hidden_size", "d_model * n_layers", c.d_model, c.n_layers, kMostInStream);
  c.tied = keys.flag("tie_word_embeddings", {}, false);
  c.attn_dropout = read_dropout(keys, "attention_dropout", 0.0);
  c.norm = {.eps = read_eps(config, "layer_norm_eps", "attention.layer_norm_epsilon", 1e-5)};
  c.activation = read_activation(keys, "hidden_act", {}, "gelu");
  c.parallel = keys.flag("use_parallel_residual", {}, true);
  c.by_head = !config.gguf;
  c.qkv_bias = config.gguf || keys.flag("attention_bias", {}, true);
  c.hidden_dropout = read_dropout(keys, "hidden_dropout", 0.0);
  c.rope = read_neox_rope(config, c);
  keys.ignore({"classifier_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob"});  // the last two: of older files
  return std::make_unique<GptNeoX>(c);
}

Json GptNeoX::config(ConfigFormat format) const {
  if (format == ConfigFormat::gguf) {
    Json keys = write_gguf_sizes(c, "attention.layer_norm_epsilon", c.norm.eps);
    keys["use_parallel_residual"] = c.parallel;
    write_rope(keys, c.rope, format);
    return keys;
  }
  Json keys = {{"model_type", "gpt_neox"},
               {"hidden_size", c.d_model},
               {"num_hidden_layers", c.n_layers},
               {"num_attention_heads", c.n_heads},
               {"intermediate_size", c.d_ff},
               {"vocab_size", c.vocab_size},
               {"max_position_embeddings", c.context_length},
               {"layer_norm_eps", shortest(c.norm.eps)},
               {"hidden_act", activation_key(c.activation)},
               {"use_parallel_residual", c.parallel},
               {"attention_bias", c.qkv_bias},
               {"attention_dropout", c.attn_dropout},
               {"hidden_dropout", c.hidden_dropout},
               {"rotary_emb_base", whole_or_real(shortest(c.rope.theta))},
               {"rotary_pct", static_cast<double>(c.rope.rotary_dim) / static_cast<double>(c.head_dim)},
               {"tie_word_embeddings", c.tied}};
  if (c.rope.scaling == RopeSpec::Scaling::none && c.rope.divisors == nullptr) return keys;
  Json& rope = keys["rope_parameters"] = rope_parameters(c.rope);
  rope.emplace("partial_rotary_factor", keys["rotary_pct"]);
  return keys;
}

}  // namespace

Family gpt_neox_family() {
  return {.name = "gpt_neox",
          .gguf = "gptneox",
          .architecture = "GPTNeoXForCausalLM",
          .title = "GPT-NeoX",
          .paper = "arXiv:2204.06745",
          .source = "src/engine/model/gpt_neox.cpp",
          .second_source = "src/engine/model/stacked_attention.cpp",
          .make = read_gpt_neox,
          .head = "embed_out.weight",
          .optional_prefixes = {"gpt_neox."},
          .ignored_suffixes = {".attention.bias", ".attention.masked_bias", ".attention.rotary_emb.inv_freq", "embed_out.weight"},
          .dropout = {.embedding = "hidden_dropout", .attention = "attention_dropout", .residual = "hidden_dropout"},
          .has_forms = false};
}

}  // namespace vitrine
