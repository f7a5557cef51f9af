// BLOOM. Scores fall with distance instead of positions in the stream (ALiBi), a LayerNorm after the embedding, queries, keys
// and values from one stored matrix. BigScience, arXiv:2211.05100, section 3.2; ALiBi: Press et al., arXiv:2108.12409, section 3.
// T rows of the step (sequences one after the other), N n_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/stacked_attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"

namespace vitrine {
namespace {

struct BloomConfig : ModelShape {
  bool by_head = true;  // as StackedAttention
  NormSpec norm;
  double hidden_dropout = 0, attn_dropout = 0;
};

struct BloomBlock {
  LayerNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  StackedAttention attn;                                           // W_QKV [3·D, D], W_O [D, D]
  LayerNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  Mlp mlp;                                                         // W_in [F, D] + bias [F], W_out [D, F] + bias [D]
};

// Where dropout acts; a layer's sites are three apart.
enum BloomSite : uint32_t { kBloomPattern, kBloomAttention, kBloomMlp };
uint32_t bloom_site(BloomSite site, int64_t layer) { return site + static_cast<uint32_t>(layer) * 3; }

class Bloom final : public Decoder, public StacksHeads {
 public:
  explicit Bloom(const BloomConfig& c);
  Tensor embedded(Context& ctx, const Step& step) const override;
  Json config(ConfigFormat format) const override;
  const StackedAttention& stacked_attention(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].attn; }

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  AttentionSpec attention_spec(int64_t layer) const;

  const BloomConfig c;
  LayerNorm ln_embed{{"ln_embed", "transformer.word_embeddings_layernorm", "token_embd_norm"}};  // [D]
  std::vector<BloomBlock> blocks;
  LayerNorm ln_final{{"ln_final", "transformer.ln_f", "output_norm"}};  // [D]
};

Tensor Bloom::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const BloomBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);                                                // [T, D] #norm
  const auto [q, k, v] = w.attn.qkv(ctx, x);                                             // [T, N, H] each #attention
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.hidden_dropout, bloom_site(kBloomAttention, layer)));
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  Tensor mlp_out = w.mlp(ctx, y);          // gelu(y W_inᵀ + b_in) W_outᵀ + b_out, [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.hidden_dropout, bloom_site(kBloomMlp, layer)));
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec Bloom::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .alibi = true,                                            // #positions
          .dropout = c.attn_dropout,
          .dropout_site = bloom_site(kBloomPattern, layer)};
}

// The stream begins after the norm, as in TransformerLens.
Tensor Bloom::embedded(Context& ctx, const Step& step) const {
  return ctx.hook("hook_embed", ln_embed(ctx, embed(ctx, step.tokens(), W_E)));  // [T, D] #embed
}

Bloom::Bloom(const BloomConfig& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = Activation::gelu_tanh});
  list.add(W_E, "W_E", "transformer.word_embeddings.weight", "token_embd.weight", list.size.V, list.size.D);
  list.add(ln_embed);
  for (BloomBlock& w : blocks) {
    list.begin_layer("transformer.h.");
    list.add(w.ln1);
    add_stacked(list, w.attn, {"self_attention.query_key_value", "attn_qkv"}, {"self_attention.dense", "attn_output"}, c,
                c.by_head);
    list.add(w.ln2);
    list.add(w.mlp, {"mlp.dense_h_to_4h", "ffn_up"}, {"mlp.dense_4h_to_h", "ffn_down"});
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", list.size.V, list.size.D);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_bloom(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  BloomConfig c;
  c.family = "bloom";
  c.d_model = keys.positive("hidden_size", {"n_embed", "embedding_length"});
  c.n_layers = read_layers(keys, "n_layer", {"num_hidden_layers", "block_count"});
  c.n_heads = keys.positive("n_head", {"num_attention_heads", "attention.head_count"});
  if (c.d_model % c.n_heads != 0) keys.fail("n_head", "does not divide hidden_size (" + std::to_string(c.d_model) + ")");
  c.set_heads(c.n_heads, c.d_model / c.n_heads);
  check_product(keys, "hidden_size", "d_model * n_layers", c.d_model, c.n_layers, kMostInStream);
  c.d_ff = 4 * c.d_model;
  if (const auto d_ff = keys.find_positive("n_inner", {"feed_forward_length"}); d_ff && *d_ff != c.d_ff)
    keys.fail("n_inner", "is not read by this family; expected 4 * hidden_size, or null");
  if (const auto kv = keys.find_positive("attention.head_count_kv"); kv && *kv != c.n_heads)
    keys.fail("attention.head_count_kv", "is not attention.head_count (" + std::to_string(c.n_heads) + ")");
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("seq_length", {"context_length"}, 2048);  // as trained; nothing in the model ends there
  c.tied = keys.flag("tie_word_embeddings", {}, true);
  c.by_head = !config.gguf;
  c.norm = {.eps = read_eps(config, "layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-5)};
  c.attn_dropout = read_dropout(keys, "attention_dropout", 0.0);
  c.hidden_dropout = read_dropout(keys, "hidden_dropout", 0.0);
  refuse_flags(keys, {"apply_residual_connection_post_layernorm"});  // no published model has it
  keys.ignore({"slow_but_exact", "attention_softmax_in_fp32", "masked_softmax_fusion", "offset_alibi", "skip_bias_add",
               "skip_bias_add_qkv", "bias_dropout_fusion"});
  return std::make_unique<Bloom>(c);
}

Json Bloom::config(ConfigFormat format) const {
  if (format == ConfigFormat::gguf) {
    Json keys = write_gguf_sizes(c, "attention.layer_norm_epsilon", c.norm.eps);
    keys["attention.head_count_kv"] = c.n_heads;
    return keys;
  }
  return {{"model_type", "bloom"},
          {"hidden_size", c.d_model},
          {"n_layer", c.n_layers},
          {"n_head", c.n_heads},
          {"vocab_size", c.vocab_size},
          {"seq_length", c.context_length},
          {"layer_norm_epsilon", shortest(c.norm.eps)},
          {"apply_residual_connection_post_layernorm", false},
          {"attention_dropout", c.attn_dropout},
          {"hidden_dropout", c.hidden_dropout},
          {"tie_word_embeddings", c.tied}};
}

}  // namespace

Family bloom_family() {
  return {.name = "bloom",
          .gguf = "bloom",
          .architecture = "BloomForCausalLM",
          .title = "BLOOM",
          .paper = "arXiv:2211.05100",
          .source = "src/engine/model/bloom.cpp",
          .second_source = "src/engine/model/stacked_attention.cpp",
          .make = read_bloom,
          .optional_prefixes = {"transformer."},
          .ignored_suffixes = {"lm_head.weight"},
          .dropout = {.embedding = nullptr, .attention = "attention_dropout", .residual = "hidden_dropout"},
          .has_forms = false};
}

}  // namespace vitrine
