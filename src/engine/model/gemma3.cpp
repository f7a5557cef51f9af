// Gemma 3 (text). Five sliding-window layers to each global one, with a RoPE base of their own; an RMSNorm on each head's query
// and key instead of Gemma 2's soft caps; RMSNorm before and after each sub-layer. Gemma Team, arXiv:2503.19786, section 2.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <algorithm>
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct Gemma3Config : DecoderConfig {
  double query_pre_attn_scalar = 0, final_logit_softcapping = 0;
  RopeSpec local_rope = {};  // of layers with a window
};

struct Gemma3Block {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};                               // [D]
  NormedAttention attn;                                                               // W_Q, W_K, W_V, W_O; q_norm, k_norm
  RmsNorm ln1_post{{"ln1_post", "post_attention_layernorm", "post_attention_norm"}};  // [D]
  RmsNorm ln2{{"ln2", "pre_feedforward_layernorm", "ffn_norm"}};                      // [D]
  GatedMlp mlp;                                                                       // W_gate, W_in, W_out
  RmsNorm ln2_post{{"ln2_post", "post_feedforward_layernorm", "post_ffw_norm"}};      // [D]
};

class Gemma3 final : public RopeDecoder {
 public:
  explicit Gemma3(const Gemma3Config& c);
  Head head() const override { return {unembedding(), c.final_logit_softcapping}; }  // #head
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  AttentionSpec attention_spec(int64_t layer) const override;
  const RopeSpec& rope_spec(int64_t layer) const override;

  const Gemma3Config c;
  std::vector<Gemma3Block> blocks;
};

Tensor Gemma3::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Gemma3Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = w.attn.q_norm(ctx, q);               // [T, N, H] #attention
  k = w.attn.k_norm(ctx, k);               // [T, G, H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, rope_spec(layer)));                   // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, rope_spec(layer)));                   // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));    // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.ln1_post(ctx, w.attn.out(ctx, z)));  // [T, D] #attention #post-norm
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));      // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // GeGLU: (gelu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.ln2_post(ctx, w.mlp(ctx, y)));  // [T, D] #mlp #post-norm
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));     // [T, D] #residual
}

AttentionSpec Gemma3::attention_spec(int64_t layer) const {
  AttentionSpec spec = RopeDecoder::attention_spec(layer);
  // It comes from query_pre_attn_scalar, not from head_dim: in the 27B model they differ (168 against 128).
  spec.scale = 1 / std::sqrt(c.query_pre_attn_scalar);  // #scale
  return spec;
}

const RopeSpec& Gemma3::rope_spec(int64_t layer) const {
  return c.windows[static_cast<size_t>(layer)] == kNoWindow ? c.rope : c.local_rope;  // #rope
}

Gemma3::Gemma3(const Gemma3Config& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors({.gguf_offset = 1});  // GGUF holds the factor 1 + w of a norm
  for (Gemma3Block& w : blocks) list.add_layer(w.ln1, w.attn, w.ln1_post, w.ln2, w.mlp, w.ln2_post);
  end_tensors(list);
}

std::unique_ptr<Model> read_gemma3_text(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Gemma3Config c{read_decoder(config, "gemma3_text", {.context_length = 131072, .n_kv_heads = 4, .head_dim = 256, .tied = true})};
  c.embedding_scale = std::sqrt(static_cast<double>(c.d_model));
  c.norm.offset = config.gguf ? 0.0 : 1.0;
  c.activation = read_activation(keys, "hidden_activation", {}, "gelu_pytorch_tanh");
  const int64_t every =
      keys.positive("sliding_window_pattern", {"_sliding_window_pattern", "attention.sliding_window_pattern"}, 6);
  // llama.cpp leaves the window out where no layer has one.
  c.windows = read_windows(config, c.n_layers, config.gguf ? kNoWindow : 4096,
                           [every](int64_t layer) { return (layer + 1) % every != 0; });
  const auto ropes =
      read_layer_ropes(config, c, c.head_dim, {.theta = 1e6, .local_theta = 1e4, .local_theta_key = "rope_local_base_freq"});
  c.rope = ropes.global;
  c.local_rope = ropes.local;
  if (keys.has("attn_logit_softcapping")) keys.fail("attn_logit_softcapping", "is not a setting of Gemma 3; expected null");
  c.final_logit_softcapping = read_softcap(config, "final_logit_softcapping", 0);
  // GGUF has no key for it; only the 27B differs.
  const double absent = !config.gguf ? 256 : static_cast<double>(c.n_layers == 62 ? c.d_model / c.n_heads : c.head_dim);
  c.query_pre_attn_scalar = keys.number("query_pre_attn_scalar", {"vitrine.query_pre_attn_scalar"}, absent);
  if (!(c.query_pre_attn_scalar > 0)) keys.fail("query_pre_attn_scalar", "must be above 0");
  refuse_flags(keys, {"attention_bias", "use_bidirectional_attention"});
  return std::make_unique<Gemma3>(c);
}

Json Gemma3::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  write_windows(keys, c.windows, format);
  if (format == ConfigFormat::huggingface && keys["sliding_window"].is_null()) keys["sliding_window"] = 4096;  // must be a number
  if (format == ConfigFormat::gguf) {
    const auto global = std::find(c.windows.begin(), c.windows.end(), kNoWindow);  // the last layer of each period
    keys["attention.sliding_window_pattern"] = global - c.windows.begin() + 1;
    keys["rope.freq_base_swa"] = c.local_rope.theta;
    keys["vitrine.query_pre_attn_scalar"] = c.query_pre_attn_scalar;
    return keys;
  }
  keys["rope_local_base_freq"] = shortest(c.local_rope.theta);
  keys["query_pre_attn_scalar"] = whole_or_real(shortest(c.query_pre_attn_scalar));
  keys["final_logit_softcapping"] = c.final_logit_softcapping > 0 ? Json(shortest(c.final_logit_softcapping)) : Json(nullptr);
  keys["hidden_activation"] = activation_key(c.activation);
  keys["attention_bias"] = false;
  return keys;
}

}  // namespace

Family gemma3_text_family() {
  return {.name = "gemma3_text",
          .gguf = "gemma3",
          .architecture = "Gemma3ForCausalLM",
          .title = "Gemma 3",
          .paper = "arXiv:2503.19786",
          .source = "src/engine/model/gemma3.cpp",
          .make = read_gemma3_text,
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"},
          .norms = Form::Norms::own};
}

}  // namespace vitrine
