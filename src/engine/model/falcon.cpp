// Falcon 7B. One LayerNorm, whose result both attention and MLP read; both are added to the stream; all query heads share one key
// and value head; queries, keys and values in one stored matrix. Almazrouei et al., arXiv:2311.16867, section 4.
// T rows of the step (sequences one after the other), N n_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>
#include <utility>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct FalconConfig : DecoderConfig {
  double hidden_dropout = 0;
};

struct FalconBlock {
  LayerNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};  // [D]
  Attention attn;                                          // W_Q [D, D], W_K [H, D], W_V [H, D], W_O [D, D]
  Mlp mlp;                                                 // W_in [F, D], W_out [D, F]
};

class Falcon final : public Decoder {
 public:
  explicit Falcon(const FalconConfig& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }

  const FalconConfig c;
  std::vector<FalconBlock> blocks;
  LayerNorm ln_final{{"ln_final", "transformer.ln_f", "output_norm"}};  // [D]
};

Tensor Falcon::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const FalconBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, 1, H] twice; hooks attn.hook_q, _k, _v #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                        // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                        // #rope
  const AttentionSpec spec{.scale = 1 / std::sqrt(static_cast<double>(c.head_dim))};  // #scale
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, spec);                // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                               // [T, D] #attention
  const auto site = static_cast<uint32_t>(layer) * 2;
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.hidden_dropout, site));

  // The same norm once more, so that what the MLP reads has hooks of its own, as in other layers of this kind.
  const Tensor y = layer_norm(ctx, "ln2", resid_pre, w.ln1.w, w.ln1.b, c.norm);  // [T, D] #norm
  Tensor mlp_out = w.mlp(ctx, y);                                                // gelu(y W_inᵀ) W_outᵀ, [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.hidden_dropout, site + 1));
  const Tensor both = add(ctx, mlp_out, attn_out);                            // [T, D] #residual
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_pre, both)));  // [T, D] #residual
}

Falcon::Falcon(const FalconConfig& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation});
  const auto& [D, F, V, H, NH, GH] = list.size;
  const Dim all{"(n_heads + 2) * head_dim", NH.size + 2 * H.size};
  const StoredLayout q{.part = 0, .parts = 3, .before = 0, .whole = all},
      k{.part = 1, .parts = 3, .before = NH.size, .whole = all},
      v{.part = 2, .parts = 3, .before = NH.size + H.size, .whole = all};
  list.add(W_E, "W_E", "transformer.word_embeddings.weight", "token_embd.weight", V, D);
  for (FalconBlock& w : blocks) {
    list.begin_layer("transformer.h.");
    list.add(w.ln1);
    w.attn.head_dim = c.head_dim;
    const std::pair<Weight&, const StoredLayout&> parts[] = {{w.attn.W_Q, q}, {w.attn.W_K, k}, {w.attn.W_V, v}};
    static constexpr const char *kWeights[] = {"attn.W_Q", "attn.W_K", "attn.W_V"},
                                *kBiases[] = {"attn.b_Q", "attn.b_K", "attn.b_V"};
    for (size_t i = 0; i < 3; ++i)
      list.add(parts[i].first, kWeights[i], "self_attention.query_key_value.weight", "attn_qkv.weight", i == 0 ? NH : H, D,
               parts[i].second);
    for (size_t i = 0; i < 3 && c.qkv_bias; ++i)
      list.add(parts[i].first.bias, kBiases[i], "self_attention.query_key_value.bias", "attn_qkv.bias", i == 0 ? NH : H,
               parts[i].second);
    list.add(w.attn.W_O, "attn.W_O", "self_attention.dense.weight", "attn_output.weight", D, NH);
    if (c.qkv_bias) list.add(w.attn.W_O.bias, "attn.b_O", "self_attention.dense.bias", "attn_output.bias", D);
    w.mlp.f = c.activation;
    list.add(w.mlp.W_in, "mlp.W_in", "mlp.dense_h_to_4h.weight", "ffn_up.weight", F, D);
    if (c.qkv_bias) list.add(w.mlp.W_in.bias, "mlp.b_in", "mlp.dense_h_to_4h.bias", "ffn_up.bias", F);
    list.add(w.mlp.W_out, "mlp.W_out", "mlp.dense_4h_to_h.weight", "ffn_down.weight", D, F);
    if (c.qkv_bias) list.add(w.mlp.W_out.bias, "mlp.b_out", "mlp.dense_4h_to_h.bias", "ffn_down.bias", D);
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

// Of the forms that the configuration knows, that of 7B.
void refuse_other_forms(const ConfigReader& keys) {
  if (keys.flag("alibi", {}, false))
    keys.fail("alibi", "is true, as in Falcon-RW, whose positions transformers rounds to bf16; expected false, as in Falcon 7B");
  if (keys.flag("new_decoder_architecture", {}, false))
    keys.fail("new_decoder_architecture",
              "is true, as in Falcon 40B, 180B and Falcon 2, which are not supported; expected false, as in Falcon 7B");
  if (!keys.flag("multi_query", {}, true)) keys.fail("multi_query", "is false, as in Falcon-RW; expected true, as in Falcon 7B");
  if (!keys.flag("parallel_attn", {}, true))
    keys.fail("parallel_attn", "is false, as in Falcon-RW; expected true, as in Falcon 7B");
  refuse_flags(keys, {"apply_residual_connection_post_layernorm"});
  keys.ignore({"num_kv_heads", "n_head_kv", "num_ln_in_parallel_attn"});  // of the other forms
}

std::unique_ptr<Model> read_falcon(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  FalconConfig c;
  c.family = "falcon";
  c.d_model = keys.positive("hidden_size", {"n_embed", "embedding_length"});
  c.n_layers = read_layers(keys, "num_hidden_layers", {"n_layer", "block_count"});
  c.n_heads = keys.positive("num_attention_heads", {"n_head", "attention.head_count"});
  if (c.d_model % c.n_heads != 0)
    keys.fail("num_attention_heads", "does not divide hidden_size (" + std::to_string(c.d_model) + ")");
  c.set_heads(c.n_heads, c.d_model / c.n_heads);
  c.n_kv_heads = 1;
  if (keys.positive("attention.head_count_kv", {}, 1) != 1)
    keys.fail("attention.head_count_kv", "is that of Falcon 40B or Falcon 2, which are not supported; expected 1");
  check_product(keys, "hidden_size", "d_model * n_layers", c.d_model, c.n_layers, kMostInStream);
  c.d_ff = keys.positive("ffn_hidden_size", {"feed_forward_length"}, 4 * c.d_model);
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("max_position_embeddings", {"context_length"}, 2048);
  c.tied = keys.flag("tie_word_embeddings", {}, true);
  c.qkv_bias = !config.gguf && keys.flag("bias", {}, false);
  c.norm = {.eps = read_eps(config, "layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-5)};
  c.activation = read_activation(keys, "activation", {}, "gelu");
  c.rope = read_rope(config, c, {});
  c.hidden_dropout = read_dropout(keys, "hidden_dropout", 0.0);
  read_dropout(keys, "attention_dropout", 0.0);  // which acts in no layer of this form
  refuse_other_forms(keys);
  keys.ignore({"tensor_data_layout"});
  return std::make_unique<Falcon>(c);
}

Json Falcon::config(ConfigFormat format) const {
  if (format == ConfigFormat::gguf) {
    Json keys = write_gguf_sizes(c, "attention.layer_norm_epsilon", c.norm.eps);
    keys["attention.head_count_kv"] = 1;
    keys["tensor_data_layout"] = "jploski";  // the order of the stacked matrix's rows
    write_rope(keys, c.rope, format);
    return keys;
  }
  Json keys = {{"model_type", "falcon"},
               {"hidden_size", c.d_model},
               {"num_hidden_layers", c.n_layers},
               {"num_attention_heads", c.n_heads},
               {"ffn_hidden_size", c.d_ff},
               {"vocab_size", c.vocab_size},
               {"max_position_embeddings", c.context_length},
               {"layer_norm_epsilon", shortest(c.norm.eps)},
               {"activation", activation_key(c.activation)},
               {"alibi", false},
               {"new_decoder_architecture", false},
               {"multi_query", true},
               {"parallel_attn", true},
               {"bias", c.qkv_bias},
               {"hidden_dropout", c.hidden_dropout},
               {"tie_word_embeddings", c.tied}};
  write_rope(keys, c.rope, format);
  return keys;
}

}  // namespace

Family falcon_family() {
  return {.name = "falcon",
          .gguf = "falcon",
          .architecture = "FalconForCausalLM",
          .title = "Falcon",
          .paper = "arXiv:2311.16867",
          .source = "src/engine/model/falcon.cpp",
          .make = read_falcon,
          .optional_prefixes = {"transformer."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"},
          .dropout = {.embedding = nullptr, .attention = nullptr, .residual = "hidden_dropout"},
          .has_forms = false};
}

}  // namespace vitrine
