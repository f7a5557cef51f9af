// ERNIE 4.5, dense. Llama's text with neighboring components that rotate together, and biases everywhere where the configuration
// says so. Baidu, "ERNIE 4.5 technical report", https://yiyan.baidu.com/blog/publication, section 2.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct ErnieBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                // W_Q, W_K, W_V, W_O
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                  // W_gate, W_in, W_out
};

class Ernie final : public RopeDecoder {
 public:
  explicit Ernie(const DecoderConfig& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const DecoderConfig c;
  std::vector<ErnieBlock> blocks;
};

Tensor Ernie::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const ErnieBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // neighboring components #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.attn.out(ctx, z));                 // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));    // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.mlp(ctx, y));                // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

Ernie::Ernie(const DecoderConfig& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (ErnieBlock& w : blocks) list.add_layer(w.ln1, w.attn, w.ln2, w.mlp);
  end_tensors(list);
}

std::unique_ptr<Model> read_ernie4_5(const ModelConfig& config) {
  DecoderConfig c = read_decoder(config, "ernie4_5", {.context_length = 131072, .n_kv_heads = 2, .head_dim = 128, .tied = true});
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.activation = read_activation(config.keys, "hidden_act", {}, "silu");
  c.rope = read_rope(config, c, {.theta = 500000, .pairs = true});
  c.attn_dropout = 0;  // the reference reads no key for it
  c.qkv_bias = c.o_bias = c.mlp_bias = config.keys.flag("use_bias", {}, false);
  return std::make_unique<Ernie>(c);
}

Json Ernie::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) return keys;
  keys.erase("attention_dropout");
  keys["hidden_act"] = activation_key(c.activation);
  keys["use_bias"] = c.qkv_bias;
  return keys;
}

}  // namespace

Family ernie4_5_family() {
  return {.name = "ernie4_5",
          .gguf = "ernie4_5",
          .architecture = "Ernie4_5ForCausalLM",
          .other_architecture = "Ernie4_5_ForCausalLM",  // in files that were published before transformers had the family
          .title = "ERNIE 4.5",
          .paper = "https://yiyan.baidu.com/blog/publication/ERNIE_Technical_Report.pdf",
          .source = "src/engine/model/ernie4_5.cpp",
          .make = read_ernie4_5,
          .dropout = {.embedding = nullptr, .attention = nullptr, .residual = nullptr},
          .scores_sequences = false};
}

}  // namespace vitrine
