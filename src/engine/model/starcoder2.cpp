// StarCoder 2. Grouped queries with RoPE and a window on every layer, LayerNorm with weight and bias before each sub-layer, a
// two-layer MLP with GELU, biases everywhere. Lozhkov et al., arXiv:2402.19173, section 6.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct StarCoder2Config : DecoderConfig {
  double embd_dropout = 0, resid_dropout = 0;
};

struct StarCoder2Block {
  LayerNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                  // W_Q, W_K, W_V, W_O with biases
  LayerNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  Mlp mlp;                                                         // W_in [F, D] + bias [F], W_out [D, F] + bias [D]
};

// Where dropout acts; a layer's sites are four apart.
enum StarCoder2Site : uint32_t { kStarCoder2Pattern, kStarCoder2Attention, kStarCoder2Mlp, kStarCoder2Embedding };
uint32_t starcoder2_site(StarCoder2Site site, int64_t layer) { return site + static_cast<uint32_t>(layer) * 4; }

class StarCoder2 final : public Decoder {
 public:
  explicit StarCoder2(const StarCoder2Config& c);
  Tensor embedded(Context& ctx, const Step& step) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  AttentionSpec attention_spec(int64_t layer) const;

  const StarCoder2Config c;
  std::vector<StarCoder2Block> blocks;
  LayerNorm ln_final{{"ln_final", "model.norm", "output_norm"}};  // [D]
};

Tensor StarCoder2::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const StarCoder2Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.resid_dropout, starcoder2_site(kStarCoder2Attention, layer)));
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  Tensor mlp_out = w.mlp(ctx, y);          // gelu(y W_inᵀ + b_in) W_outᵀ + b_out, [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.resid_dropout, starcoder2_site(kStarCoder2Mlp, layer)));
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec StarCoder2::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .window = c.window_of_all(),                              // #window
          .dropout = c.attn_dropout,
          .dropout_site = starcoder2_site(kStarCoder2Pattern, layer)};
}

Tensor StarCoder2::embedded(Context& ctx, const Step& step) const {
  const Tensor tokens = ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
  return dropout(ctx, tokens, c.embd_dropout, kStarCoder2Embedding);
}

StarCoder2::StarCoder2(const StarCoder2Config& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation, .qkv_bias = c.qkv_bias, .o_bias = c.o_bias});
  const auto& [D, F, V, H, NH, GH] = list.size;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (StarCoder2Block& w : blocks) {
    list.add_layer(w.ln1, w.attn, w.ln2);
    w.mlp.f = c.activation;
    list.add(w.mlp.W_in, "mlp.W_in", "mlp.c_fc.weight", "ffn_up.weight", F, D);
    if (c.mlp_bias) list.add(w.mlp.W_in.bias, "mlp.b_in", "mlp.c_fc.bias", "ffn_up.bias", F);
    list.add(w.mlp.W_out, "mlp.W_out", "mlp.c_proj.weight", "ffn_down.weight", D, F);
    if (c.mlp_bias) list.add(w.mlp.W_out.bias, "mlp.b_out", "mlp.c_proj.bias", "ffn_down.bias", D);
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_starcoder2(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  StarCoder2Config c{read_decoder(config, "starcoder2", {.context_length = 4096, .n_kv_heads = 2, .tied = true})};
  if (c.head_dim * c.n_heads != c.d_model)
    keys.fail("head_dim", "is not supported by this family; expected hidden_size / num_attention_heads");
  if (!config.gguf && keys.has("rms_norm_eps")) keys.fail("rms_norm_eps", "is not read by this family; expected norm_epsilon");
  c.norm = {.eps = read_eps(config, "norm_epsilon", "attention.layer_norm_epsilon", 1e-5)};
  c.activation = read_activation(keys, "hidden_act", {}, "gelu_pytorch_tanh");
  const bool biases = config.gguf ? keys.flag("attention_bias", {}, false) : keys.flag("use_bias", {}, true);
  c.qkv_bias = c.o_bias = c.mlp_bias = biases;
  c.rope = read_rope(config, c, {});
  c.embd_dropout = read_dropout(keys, "embedding_dropout", 0.0);
  c.resid_dropout = read_dropout(keys, "residual_dropout", 0.0);
  c.windows = read_windows(config, c.n_layers, kNoWindow, [](int64_t) { return true; });
  if (!config.gguf && keys.has("layer_types")) keys.fail("layer_types", "is not read by this family; leave the key out");
  // Of published files: names of the parts, which are the same in all of them.
  keys.ignore({"activation_function", "mlp_type", "norm_type"});
  return std::make_unique<StarCoder2>(c);
}

Json StarCoder2::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    keys.erase("attention.layer_norm_rms_epsilon");
    keys["attention.layer_norm_epsilon"] = c.norm.eps;
    if (c.has_windows()) keys["attention.sliding_window"] = c.window_of_all();
    return keys;
  }
  for (const char* key : {"rms_norm_eps", "head_dim"}) keys.erase(key);
  keys["norm_epsilon"] = shortest(c.norm.eps);
  keys["hidden_act"] = activation_key(c.activation);
  keys["use_bias"] = c.qkv_bias;
  keys["embedding_dropout"] = c.embd_dropout;
  keys["residual_dropout"] = c.resid_dropout;
  keys["sliding_window"] = c.window_of_all() == kNoWindow ? Json(nullptr) : Json(c.window_of_all());
  return keys;
}

}  // namespace

Family starcoder2_family() {
  return {.name = "starcoder2",
          .gguf = "starcoder2",
          .architecture = "Starcoder2ForCausalLM",
          .title = "StarCoder 2",
          .paper = "arXiv:2402.19173",
          .source = "src/engine/model/starcoder2.cpp",
          .make = read_starcoder2,
          .dropout = {.embedding = "embedding_dropout", .attention = "attention_dropout", .residual = "residual_dropout"}};
}

}  // namespace vitrine
