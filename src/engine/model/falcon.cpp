// Falcon. Attention and MLP read one LayerNorm of the same stream, or two of their own, and both are added to it; all query heads
// share one key and value head, or groups of them one each; queries, keys and values in one stored matrix. Almazrouei et al.,
// arXiv:2311.16867, section 4. T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D
// d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "model/stacked_attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct FalconConfig : DecoderConfig {
  double hidden_dropout = 0;
  bool biases = false;
  bool grouped = false;    // as in 40B (new_decoder_architecture), where a file orders the matrix by key heads
  bool two_norms = false;  // one for attention, one for the MLP
  bool by_head = true;     // as StackedAttention
};

struct FalconBlock {
  LayerNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};  // [D]
  LayerNorm ln2{{"ln2", "ln_mlp", "attn_norm"}};           // [D] of the MLP with two_norms
  StackedAttention attn;                                   // W_QKV [(N + 2 G)·H, D], W_O [D, D]
  Mlp mlp;                                                 // W_in [F, D], W_out [D, F]
};

class Falcon final : public Decoder, public StacksHeads {
 public:
  explicit Falcon(const FalconConfig& c);
  Json config(ConfigFormat format) const override;
  const StackedAttention& stacked_attention(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].attn; }

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

  const Tensor x = w.ln1(ctx, resid_pre);                                             // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);                                                // [T, N, H], [T, G, H] twice #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                        // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                        // #rope
  const AttentionSpec spec{.scale = 1 / std::sqrt(static_cast<double>(c.head_dim))};  // #scale
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, spec);                // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                               // [T, D] #attention
  // The reference drops numbers of the sum of both: the same numbers of each.
  const auto site = static_cast<uint32_t>(layer);
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.hidden_dropout, site));

  // With one norm it is the same once more, so that what the MLP reads has hooks of its own, as in other layers of this kind.
  const LayerNorm& norm = c.two_norms ? w.ln2 : w.ln1;
  const Tensor y = layer_norm(ctx, "ln2", resid_pre, norm.w, norm.b, c.norm);  // [T, D] #norm
  Tensor mlp_out = w.mlp(ctx, y);                                              // gelu(y W_inᵀ) W_outᵀ, [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.hidden_dropout, site));
  const Tensor both = add(ctx, mlp_out, attn_out);                            // [T, D] #residual
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_pre, both)));  // [T, D] #residual
}

Falcon::Falcon(const FalconConfig& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation});
  const auto& [D, F, V, H, NH, GH] = list.size;
  list.add(W_E, "W_E", "transformer.word_embeddings.weight", "token_embd.weight", V, D);
  for (FalconBlock& w : blocks) {
    list.begin_layer("transformer.h.");
    if (c.two_norms) w.ln1.name = {"ln1", "ln_attn", "attn_norm_2"};  // in GGUF the MLP's comes first
    list.add(w.ln1);
    add_stacked(list, w.attn, {"self_attention.query_key_value", "attn_qkv"}, {"self_attention.dense", "attn_output"}, c,
                c.by_head, c.biases);
    if (c.two_norms) list.add(w.ln2);
    w.mlp.f = c.activation;
    list.add(w.mlp.W_in, "mlp.W_in", "mlp.dense_h_to_4h.weight", "ffn_up.weight", F, D);
    if (c.biases) list.add(w.mlp.W_in.bias, "mlp.b_in", "mlp.dense_h_to_4h.bias", "ffn_up.bias", F);
    list.add(w.mlp.W_out, "mlp.W_out", "mlp.dense_4h_to_h.weight", "ffn_down.weight", D, F);
    if (c.biases) list.add(w.mlp.W_out.bias, "mlp.b_out", "mlp.dense_4h_to_h.bias", "ffn_down.bias", D);
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

// Of the forms that the configuration knows, that of Falcon-RW: heads and layers as in BLOOM.
void refuse_other_forms(const ConfigReader& keys, bool grouped) {
  if (keys.flag("alibi", {}, false))
    keys.fail("alibi", "is true, as in Falcon-RW, whose positions transformers rounds to bf16; expected false, as in Falcon 7B");
  const bool one_key_head = keys.flag("multi_query", {}, true), parallel = keys.flag("parallel_attn", {}, true);
  if (!one_key_head && !grouped) keys.fail("multi_query", "is false, as in Falcon-RW; expected true, as in Falcon 7B");
  if (!parallel) keys.fail("parallel_attn", "is false, as in Falcon-RW; expected true, as in Falcon 7B");
  refuse_flags(keys, {"apply_residual_connection_post_layernorm"});
}

// What a GGUF file does not say but shows.
void read_form(const ModelConfig& config, FalconConfig& c) {
  const ConfigReader& keys = config.keys;
  c.n_kv_heads = 1;
  const bool says_norms = keys.has("num_ln_in_parallel_attn");
  const int64_t norms = keys.positive("num_ln_in_parallel_attn", {}, 1);
  if (norms > 2) keys.fail("num_ln_in_parallel_attn", "is not supported; expected 1 or 2");
  if (config.gguf) {
    c.n_kv_heads = keys.positive("attention.head_count_kv", {}, 1);
    c.two_norms = norms == 2;
    c.grouped = c.n_kv_heads > 1 || c.two_norms;
  } else if ((c.grouped = keys.flag("new_decoder_architecture", {}, false))) {
    c.n_kv_heads = keys.positive("num_kv_heads", {"n_head_kv"}, c.n_heads);
    c.two_norms = !says_norms || norms == 2;
  } else {
    keys.ignore({"num_kv_heads", "n_head_kv"});
    if (norms != 1) keys.fail("num_ln_in_parallel_attn", "is not supported without new_decoder_architecture; expected 1 or null");
  }
  check_heads(keys, c.n_heads, c.n_kv_heads);
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
  read_form(config, c);
  check_product(keys, "hidden_size", "d_model * n_layers", c.d_model, c.n_layers, kMostInStream);
  c.d_ff = keys.positive("ffn_hidden_size", {"feed_forward_length"}, 4 * c.d_model);
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("max_position_embeddings", {"context_length"}, 2048);
  c.tied = keys.flag("tie_word_embeddings", {}, true);
  c.biases = !config.gguf && keys.flag("bias", {}, false);
  c.norm = {.eps = read_eps(config, "layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-5)};
  c.activation = read_activation(keys, "activation", {}, "gelu");
  c.rope = read_rope(config, c, {});
  c.hidden_dropout = read_dropout(keys, "hidden_dropout", 0.0);
  read_dropout(keys, "attention_dropout", 0.0);  // which acts in no layer of these forms
  c.by_head = !config.gguf;
  refuse_other_forms(keys, c.grouped);
  keys.ignore({"tensor_data_layout"});
  return std::make_unique<Falcon>(c);
}

Json Falcon::config(ConfigFormat format) const {
  if (format == ConfigFormat::gguf) {
    Json keys = write_gguf_sizes(c, "attention.layer_norm_epsilon", c.norm.eps);
    keys["attention.head_count_kv"] = c.n_kv_heads;
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
               {"new_decoder_architecture", c.grouped},
               {"multi_query", true},
               {"parallel_attn", true},
               {"bias", c.biases},
               {"hidden_dropout", c.hidden_dropout},
               {"tie_word_embeddings", c.tied}};
  if (c.grouped) {
    keys["num_kv_heads"] = c.n_kv_heads;
    keys["num_ln_in_parallel_attn"] = c.two_norms ? 2 : 1;
  }
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
          .second_source = "src/engine/model/stacked_attention.cpp",
          .make = read_falcon,
          .optional_prefixes = {"transformer."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"},
          .dropout = {.embedding = nullptr, .attention = nullptr, .residual = "hidden_dropout"},
          .has_forms = false};
}

}  // namespace vitrine
