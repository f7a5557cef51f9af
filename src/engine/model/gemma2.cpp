// Gemma 2. Grouped-query attention with RoPE, sliding-window and global layers in turn, soft-capped scores and logits,
// RMSNorm before and after each sub-layer. Gemma Team, arXiv:2408.00118, section 2 and table 1.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct Gemma2Config : DecoderConfig {
  double query_pre_attn_scalar = 0, attn_logit_softcapping = 0, final_logit_softcapping = 0;
};

struct Gemma2Block {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};                               // [D]
  Attention attn;                                                                     // W_Q, W_K, W_V, W_O
  RmsNorm ln1_post{{"ln1_post", "post_attention_layernorm", "post_attention_norm"}};  // [D]
  RmsNorm ln2{{"ln2", "pre_feedforward_layernorm", "ffn_norm"}};                      // [D]
  GatedMlp mlp;                                                                       // W_gate, W_in, W_out
  RmsNorm ln2_post{{"ln2_post", "post_feedforward_layernorm", "post_ffw_norm"}};      // [D]
};

class Gemma2 final : public RopeDecoder {
 public:
  explicit Gemma2(const Gemma2Config& c);
  Head head() const override { return {unembedding(), c.final_logit_softcapping}; }  // #head
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  AttentionSpec attention_spec(int64_t layer) const override;

  const Gemma2Config c;
  std::vector<Gemma2Block> blocks;
};

Tensor Gemma2::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Gemma2Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                             // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                             // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));    // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.ln1_post(ctx, w.attn.out(ctx, z)));  // [T, D] #attention #post-norm
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));      // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // GeGLU: (gelu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.ln2_post(ctx, w.mlp(ctx, y)));  // [T, D] #mlp #post-norm
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));     // [T, D] #residual
}

AttentionSpec Gemma2::attention_spec(int64_t layer) const {
  AttentionSpec spec = RopeDecoder::attention_spec(layer);
  // It comes from query_pre_attn_scalar, not from head_dim: in the 27B model they differ (144 against 128).
  spec.scale = 1 / std::sqrt(c.query_pre_attn_scalar);  // #scale
  spec.softcap = c.attn_logit_softcapping;              // #score-cap
  return spec;
}

Gemma2::Gemma2(const Gemma2Config& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors({.gguf_offset = 1});  // GGUF holds the factor 1 + w of a norm
  for (Gemma2Block& w : blocks) list.add_layer(w.ln1, w.attn, w.ln1_post, w.ln2, w.mlp, w.ln2_post);
  end_tensors(list);
}

std::unique_ptr<Model> read_gemma2(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Gemma2Config c{read_decoder(config, "gemma2", {.context_length = 8192, .head_dim = 256, .tied = true})};
  c.embedding_scale = std::sqrt(static_cast<double>(c.d_model));
  c.norm.offset = config.gguf ? 0.0 : 1.0;
  c.rope = read_rope(config, c, {});
  c.activation = read_activation(keys, "hidden_activation", {}, "gelu_pytorch_tanh");
  c.windows = read_windows(config, c.n_layers, 4096, [](int64_t layer) { return layer % 2 == 0; });
  c.attn_logit_softcapping = read_softcap(config, "attn_logit_softcapping", 50);
  c.final_logit_softcapping = read_softcap(config, "final_logit_softcapping", 30);
  // GGUF has no key for it; the fallback is what converters of Google's models rely on: only the 27B differs.
  const double absent = !config.gguf ? 256 : static_cast<double>(c.n_layers == 46 ? c.d_model / c.n_heads : c.head_dim);
  c.query_pre_attn_scalar = keys.number("query_pre_attn_scalar", {"vitrine.query_pre_attn_scalar"}, absent);
  if (!(c.query_pre_attn_scalar > 0)) keys.fail("query_pre_attn_scalar", "must be above 0");
  refuse_flags(keys, {"attention_bias", "use_bidirectional_attention"});
  return std::make_unique<Gemma2>(c);
}

Json Gemma2::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  write_windows(keys, c.windows, format);
  const auto cap = [](double softcap) { return softcap > 0 ? Json(shortest(softcap)) : Json(nullptr); };
  keys["attn_logit_softcapping"] = cap(c.attn_logit_softcapping);
  keys["final_logit_softcapping"] = cap(c.final_logit_softcapping);
  if (format == ConfigFormat::gguf) {
    keys["vitrine.query_pre_attn_scalar"] = c.query_pre_attn_scalar;
    return keys;
  }
  keys["query_pre_attn_scalar"] = whole_or_real(shortest(c.query_pre_attn_scalar));
  keys["hidden_activation"] = activation_key(c.activation);
  keys["attention_bias"] = false;
  return keys;
}

}  // namespace

Family gemma2_family() {
  return {.name = "gemma2",
          .gguf = "gemma2",
          .architecture = "Gemma2ForCausalLM",
          .title = "Gemma 2",
          .paper = "arXiv:2408.00118",
          .source = "src/engine/model/gemma2.cpp",
          .make = read_gemma2,
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"},
          .norms = Form::Norms::own};
}

}  // namespace vitrine
