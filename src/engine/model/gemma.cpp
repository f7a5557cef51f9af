// Gemma. Multi-query (2B) or multi-head (7B) attention with RoPE, GeGLU, RMSNorm with a factor 1 + w before each sub-layer,
// embeddings scaled by sqrt(d_model), tied output. Gemma Team, arXiv:2403.08295, section 2 and table 1.
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

struct GemmaBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                // W_Q, W_K, W_V, W_O
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                  // W_gate, W_in, W_out
};

class Gemma final : public RopeDecoder {
 public:
  explicit Gemma(const DecoderConfig& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const DecoderConfig c;
  std::vector<GemmaBlock> blocks;
};

Tensor Gemma::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const GemmaBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.attn.out(ctx, z));                 // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));    // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // GeGLU: (gelu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.mlp(ctx, y));                // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

Gemma::Gemma(const DecoderConfig& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors({.gguf_offset = 1});  // GGUF holds the factor 1 + w of a norm
  for (GemmaBlock& w : blocks) list.add_layer(w.ln1, w.attn, w.ln2, w.mlp);
  end_tensors(list);
}

std::unique_ptr<Model> read_gemma(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  DecoderConfig c = read_decoder(config, "gemma", {.context_length = 8192, .head_dim = 256, .tied = true});
  c.embedding_scale = std::sqrt(static_cast<double>(c.d_model));
  c.norm.offset = config.gguf ? 0.0 : 1.0;
  c.rope = read_rope(config, c, {});
  // "gelu" in old configurations was a slip: every Gemma was trained with the tanh form. Other names of the exact form mean it,
  // as in transformers. Some configurations say both keys.
  const auto activation = [&](const char* key, const char* other) {
    const char* named = keys.has(key) ? key : other;
    if (keys.string(named, {}, "") == "gelu") return Activation::gelu_tanh;
    return read_activation(keys, named, {}, "gelu_pytorch_tanh");
  };
  c.activation = activation("hidden_act", "hidden_activation");
  if (activation("hidden_activation", "hidden_act") != c.activation)
    keys.fail("hidden_activation", "contradicts hidden_act (" + keys.string("hidden_act") + "). Remove the wrong one");
  refuse_flags(keys, {"attention_bias", "use_bidirectional_attention"});
  return std::make_unique<Gemma>(c);
}

Json Gemma::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) return keys;
  // "gelu" would be read as the tanh form.
  keys["hidden_act"] = c.activation == Activation::gelu_exact ? "gelu_python" : activation_key(c.activation);
  keys["hidden_activation"] = keys["hidden_act"];
  keys["attention_bias"] = false;
  return keys;
}

}  // namespace

Family gemma_family() {
  return {.name = "gemma",
          .gguf = "gemma",
          .architecture = "GemmaForCausalLM",
          .title = "Gemma",
          .paper = "arXiv:2403.08295",
          .source = "src/engine/model/gemma.cpp",
          .make = read_gemma,
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"}};
}

}  // namespace vitrine
