// LFM2. Most layers have a short causal convolution between two gates, some grouped-query attention with RoPE and an RMSNorm on
// each head's query and key; SwiGLU, RMSNorm before each sub-layer. Liquid AI, arXiv:2511.23404.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size,
// K taps of the convolution.
#include <algorithm>
#include <cmath>

#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/short_conv.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct Lfm2Config : DecoderConfig {
  std::vector<bool> attends = {};  // each layer: it has attention; else a convolution
  int64_t taps = 0;
  bool conv_bias = false;
};

struct Lfm2Block {
  Vector ln1, ln2;  // [D]
  // Of a layer with attention:
  Vector q_norm, k_norm;  // [H]
  Weight W_Q;             // [N·H, D]
  Weight W_K, W_V;        // [G·H, D]
  Weight W_O;             // [D, N·H]
  ShortConv conv;         // of one with a convolution: D channels, K taps
  Weight W_gate, W_in;    // [F, D]
  Weight W_out;           // [D, F]
};

class Lfm2 final : public Model {
 public:
  explicit Lfm2(const Lfm2Config& c);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  Tensor first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  Tensor attend(Context& ctx, const Step& step, int layer, const Tensor& x) const;
  AttentionSpec attention_spec(int64_t layer) const;

  const Lfm2Config c;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<Lfm2Block> blocks;
  Vector ln_final;  // [D]
};

Tensor Lfm2::attend(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  const Lfm2Block& w = blocks[static_cast<size_t>(layer)];
  auto [q, k, v] = linear(ctx, x, {w.W_Q, w.W_K, w.W_V});                                // one pass over x #attention
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, c.head_dim));                          // [T, N, H] #attention
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, c.head_dim));                          // [T, G, H] #attention
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, c.head_dim));                          // [T, G, H] #attention
  q = rms_norm(ctx, "attn.q_norm", q, w.q_norm, c.norm);                                 // [T, N, H] #attention
  k = rms_norm(ctx, "attn.k_norm", k, w.k_norm, c.norm);                                 // [T, G, H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  return attention_output(ctx, "attn", z, w.W_O);                                        // [T, D] #attention
}

Tensor Lfm2::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Lfm2Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = rms_norm(ctx, "ln1", resid_pre, w.ln1, c.norm);                     // [T, D] #norm
  const Tensor update = first_sublayer(ctx, step, layer, x);                           // [T, D] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", update);                           // of both kinds [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = rms_norm(ctx, "ln2", resid_mid, w.ln2, c.norm);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", gated_mlp(ctx, "mlp", y, w.W_gate, w.W_in, w.W_out, c.activation));  // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

// Either kind. The convolution is (C ⊙ conv(B ⊙ u)) W_outᵀ of B, C and u that it makes of x.
Tensor Lfm2::first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  if (c.attends[static_cast<size_t>(layer)]) return attend(ctx, step, layer, x);            // [T, D] #attention
  return short_conv(ctx, "conv", x, blocks[static_cast<size_t>(layer)].conv, step, layer);  // #attention
}

AttentionSpec Lfm2::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

Tensor Lfm2::embedded(Context& ctx, const Step& step) const {
  return ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
}

Tensor Lfm2::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                            // [T, D]
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(&Lfm2::block, *this, step, layer, x);  // #layers
  return rms_norm(ctx, "ln_final", x, ln_final, c.norm);                                                     // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Lfm2::head() const { return {c.tied ? &W_E : &W_U}; }  // #head

BlockSpec Lfm2::block_spec(int64_t layer) const {
  const bool attends = c.attends[static_cast<size_t>(layer)];
  BlockSpec spec{.attention = {}, .rope = {}, .norm = c.norm, .activation = c.activation};
  if (!attends) spec.conv = ConvSpec{.taps = c.taps, .channels = c.d_model};  // #window
  if (attends) spec.attention = attention_spec(layer);
  if (attends) spec.rope = c.rope;
  return spec;
}

Lfm2::Lfm2(const Lfm2Config& config) : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  const Dim H{"head_dim", c.head_dim}, DK{"d_model", c.d_model * c.taps}, K{"conv_L_cache", c.taps};
  const auto part = [](int i) { return StoredLayout{.part = i, .parts = 3}; };
  const auto add_attention = [&](TensorList& list, Lfm2Block& w) {
    list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D);
    list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D);
    list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
    list.add(w.q_norm, "attn.q_norm.w", "self_attn.q_layernorm.weight", "attn_q_norm.weight", H);
    list.add(w.k_norm, "attn.k_norm.w", "self_attn.k_layernorm.weight", "attn_k_norm.weight", H);
    list.add(w.W_O, "attn.W_O", "self_attn.out_proj.weight", "attn_output.weight", D, NH);
  };
  const auto add_convolution = [&](TensorList& list, Lfm2Block& w) {
    list.add(w.conv.W_B, "conv.W_B", "conv.in_proj.weight", "shortconv.in_proj.weight", D, D, part(0));
    list.add(w.conv.W_C, "conv.W_C", "conv.in_proj.weight", "shortconv.in_proj.weight", D, D, part(1));
    list.add(w.conv.W_x, "conv.W_x", "conv.in_proj.weight", "shortconv.in_proj.weight", D, D, part(2));
    if (c.conv_bias) {
      list.add(w.conv.W_B.bias, "conv.b_B", "conv.in_proj.bias", "shortconv.in_proj.bias", D, part(0));
      list.add(w.conv.W_C.bias, "conv.b_C", "conv.in_proj.bias", "shortconv.in_proj.bias", D, part(1));
      list.add(w.conv.W_x.bias, "conv.b_x", "conv.in_proj.bias", "shortconv.in_proj.bias", D, part(2));
    }
    list.add(w.conv.kernel, "conv.kernel", "conv.conv.weight", "shortconv.conv.weight", DK, {.taps = K});
    if (c.conv_bias) list.add(w.conv.bias, "conv.bias", "conv.conv.bias", "shortconv.conv.bias", D);
    list.add(w.conv.W_out, "conv.W_out", "conv.out_proj.weight", "shortconv.out_proj.weight", D, D);
    if (c.conv_bias) list.add(w.conv.W_out.bias, "conv.b_out", "conv.out_proj.bias", "shortconv.out_proj.bias", D);
  };
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    Lfm2Block& w = blocks[static_cast<size_t>(layer)];
    list.layer(layer, "model.layers.");
    list.add(w.ln1, "ln1.w", "operator_norm.weight", "attn_norm.weight", D);
    c.attends[static_cast<size_t>(layer)] ? add_attention(list, w) : add_convolution(list, w);
    list.add(w.ln2, "ln2.w", "ffn_norm.weight", "ffn_norm.weight", D);
    list.add(w.W_gate, "mlp.W_gate", "feed_forward.w1.weight", "ffn_gate.weight", F, D);
    list.add(w.W_in, "mlp.W_in", "feed_forward.w3.weight", "ffn_up.weight", F, D);
    list.add(w.W_out, "mlp.W_out", "feed_forward.w2.weight", "ffn_down.weight", D, F);
  }
  list.end_layers();
  list.add(ln_final, "ln_final.w", "model.embedding_norm.weight", "token_embd_norm.weight", D);  // llama.cpp's misnomer
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

// Which layers attend: by layer_types, else by full_attn_idxs, else all.
std::vector<bool> read_layer_kinds(const ConfigReader& keys, int64_t n_layers) {
  std::vector<bool> attends(static_cast<size_t>(n_layers), !keys.has("full_attn_idxs"));
  for (const int64_t layer : keys.counts("full_attn_idxs"))
    if (layer < n_layers) attends[static_cast<size_t>(layer)] = true;
  if (!keys.has("layer_types")) return attends;
  const std::vector<std::string> types = keys.strings("layer_types");
  if (static_cast<int64_t>(types.size()) != n_layers)
    keys.fail("layer_types", "has " + std::to_string(types.size()) + " entries; expected one for each of " +
                                 std::to_string(n_layers) + " layers");
  for (size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] != "conv" && types[layer] != "full_attention")
      keys.fail("layer_types", "holds \"" + types[layer] + "\"; expected conv or full_attention");
    attends[layer] = types[layer] == "full_attention";
  }
  return attends;
}

// GGUF: layers without key/value heads have a convolution.
std::vector<bool> read_gguf_layer_kinds(const ConfigReader& keys, int64_t n_layers) {
  const std::vector<int64_t> heads = keys.counts("attention.head_count_kv");
  if (heads.size() == 1 && n_layers != 1) return std::vector<bool>(static_cast<size_t>(n_layers), true);
  if (static_cast<int64_t>(heads.size()) != n_layers)
    keys.fail("attention.head_count_kv", "has " + std::to_string(heads.size()) + " entries; expected one for each of " +
                                             std::to_string(n_layers) + " layers");
  std::vector<bool> attends;
  for (const int64_t n : heads) attends.push_back(n > 0);
  return attends;
}

// What the file says is a width before it is made smaller: two thirds of it, times a factor, rounded up.
int64_t adjusted_width(const ConfigReader& keys, int64_t width) {
  if (!keys.flag("block_auto_adjust_ff_dim", {}, true)) {
    keys.ignore({"block_ffn_dim_multiplier", "block_multiple_of"});
    return width;
  }
  const int64_t multiple = keys.positive("block_multiple_of", {}, 256);
  const bool no_factor = keys.mentions("block_ffn_dim_multiplier") && !keys.has("block_ffn_dim_multiplier");
  const double factor = keys.number("block_ffn_dim_multiplier", {}, 1.0);
  const double two_thirds = std::floor(static_cast<double>(2 * width) / 3);
  if (no_factor) return static_cast<int64_t>(two_thirds);
  const double scaled = std::floor(factor * two_thirds);
  if (!(scaled >= 1 && scaled <= static_cast<double>(ConfigReader::kLargest)))
    keys.fail("block_ffn_dim_multiplier", "gives the MLP a width of " + Json(scaled).dump() + "; expected one above 0");
  return (static_cast<int64_t>(scaled) + multiple - 1) / multiple * multiple;
}

std::unique_ptr<Model> read_lfm2(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Lfm2Config c{read_decoder(config, "lfm2",
                            {.context_length = 128000, .n_kv_heads = 8, .tied = true, .d_ff = 12288, .only_some_attend = true})};
  c.norm.eps = read_eps(config, "norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.rope = read_rope(config, c, {.theta = 1e6});
  c.activation = Activation::silu;
  c.taps = keys.positive("conv_L_cache", {"shortconv.l_cache"}, config.gguf ? std::optional<int64_t>() : 3);
  if (c.taps > 4096) keys.fail("conv_L_cache", "is more positions than a convolution here may span (4096). Is the file damaged?");
  if (config.gguf) {
    c.attends = read_gguf_layer_kinds(keys, c.n_layers);
    return std::make_unique<Lfm2>(c);
  }
  c.attends = read_layer_kinds(keys, c.n_layers);
  c.conv_bias = keys.flag("conv_bias", {}, false);
  c.tied = keys.flag("tie_embedding", {}, c.tied);
  c.d_ff = adjusted_width(keys, keys.find_positive("block_ff_dim").value_or(c.d_ff));
  // Said in published files; transformers reads none of them.
  keys.ignore({"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu",
               "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "theta", "use_pos_enc",
               "rms_norm_eps"});
  return std::make_unique<Lfm2>(c);
}

Json Lfm2::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    Json& heads = keys["attention.head_count_kv"] = Json::array();
    for (const bool attends : c.attends) heads.push_back(attends ? c.n_kv_heads : 0);
    keys["shortconv.l_cache"] = c.taps;
    return keys;
  }
  keys.erase("rms_norm_eps");
  keys["norm_eps"] = shortest(c.norm.eps);
  for (const bool attends : c.attends) keys["layer_types"].push_back(attends ? "full_attention" : "conv");
  keys["conv_L_cache"] = c.taps;
  keys["conv_bias"] = c.conv_bias;
  keys["block_auto_adjust_ff_dim"] = false;  // d_ff is the width itself
  keys["block_ffn_dim_multiplier"] = 1.0;
  keys["block_multiple_of"] = 256;
  return keys;
}

}  // namespace

Family lfm2_family() {
  return {.name = "lfm2",
          .gguf = "lfm2",
          .architecture = "Lfm2ForCausalLM",
          .title = "LFM2",
          .paper = "arXiv:2511.23404",
          .source = "src/model/lfm2.cpp",
          .make = read_lfm2,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight"}};
}

}  // namespace vitrine
