// Qwen 3. Grouped-query attention with RoPE and an RMSNorm on each head's query and key, SwiGLU, RMSNorm before each sub-layer.
// Qwen Team, arXiv:2505.09388, section 2.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct Qwen3Block {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  NormedAttention attn;                                          // W_Q, W_K, W_V, W_O; q_norm, k_norm
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                  // W_gate, W_in, W_out
};

class Qwen3 final : public RopeDecoder {
 public:
  explicit Qwen3(const DecoderConfig& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const DecoderConfig c;
  std::vector<Qwen3Block> blocks;
};

Tensor Qwen3::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Qwen3Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = w.attn.q_norm(ctx, q);               // [T, N, H] #attention
  k = w.attn.k_norm(ctx, k);               // [T, G, H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.attn.out(ctx, z));                 // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));    // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.mlp(ctx, y));                // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

Qwen3::Qwen3(const DecoderConfig& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (Qwen3Block& w : blocks) list.add_layer(w.ln1, w.attn, w.ln2, w.mlp);
  end_tensors(list);
}

std::unique_ptr<Model> read_qwen3(const ModelConfig& config) {
  DecoderConfig c = read_decoder(config, "qwen3", {.context_length = 32768, .n_kv_heads = 32, .head_dim = 128});
  c.rope = read_rope(config, c, {});
  c.activation = read_activation(config.keys, "hidden_act", {}, "silu");
  c.qkv_bias = c.o_bias = config.keys.flag("attention_bias", {}, false);
  c.windows = read_qwen_windows(config, c.n_layers);
  return std::make_unique<Qwen3>(c);
}

Json Qwen3::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (c.has_windows()) write_windows(keys, c.windows, format);
  if (format == ConfigFormat::gguf) return keys;
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  keys["use_sliding_window"] = c.has_windows();
  return keys;
}

}  // namespace

Family qwen3_family() {
  return {.name = "qwen3",
          .gguf = "qwen3",
          .architecture = "Qwen3ForCausalLM",
          .title = "Qwen 3",
          .paper = "arXiv:2505.09388",
          .source = "src/engine/model/qwen3.cpp",
          .make = read_qwen3};
}

}  // namespace vitrine
