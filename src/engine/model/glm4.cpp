// GLM-4 (dense): GLM-4-9B as `glm`, GLM-4-0414 as `glm4`. Grouped-query attention with RoPE on half of each head, where
// neighboring components rotate together, SwiGLU with both of its input matrices stored as one, RMSNorm before each sub-layer.
// GLM-4-0414 also has an RMSNorm after each. Team GLM, arXiv:2406.12793, section 2. T rows of the step (sequences one after the
// other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct Glm4Config : DecoderConfig {
  bool post_norms = false;
};

struct Glm4Block {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};                               // [D]
  Attention attn;                                                                     // W_Q, W_K, W_V, W_O
  RmsNorm ln1_post{{"ln1_post", "post_self_attn_layernorm", "post_attention_norm"}};  // [D], with post_norms
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};                       // [D]
  GatedMlp mlp;                                                                       // W_gate, W_in, W_out
  RmsNorm ln2_post{{"ln2_post", "post_mlp_layernorm", "post_ffw_norm"}};              // [D], with post_norms
};

class Glm4 final : public RopeDecoder {
 public:
  explicit Glm4(const Glm4Config& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const Glm4Config c;
  std::vector<Glm4Block> blocks;
};

Tensor Glm4::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Glm4Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  // Components 2i and 2i + 1 of the first half of a head rotate together; the second half stays. #rope
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  if (c.post_norms) attn_out = w.ln1_post(ctx, attn_out);                                // [T, D] #post-norm
  attn_out = ctx.hook("hook_attn_out", attn_out);
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  Tensor mlp_out = w.mlp(ctx, y);                        // [T, D] #mlp
  if (c.post_norms) mlp_out = w.ln2_post(ctx, mlp_out);  // [T, D] #post-norm
  mlp_out = ctx.hook("hook_mlp_out", mlp_out);
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

Glm4::Glm4(const Glm4Config& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (Glm4Block& w : blocks) {
    list.add_layer(w.ln1, w.attn);
    if (c.post_norms) list.add(w.ln1_post);
    list.add(w.ln2);
    list.add_stacked(w.mlp, "mlp.gate_up_proj", "mlp.down_proj", false);
    if (c.post_norms) list.add(w.ln2_post);
  }
  end_tensors(list);
}

std::unique_ptr<Model> read(const ModelConfig& config, const char* family, bool post_norms) {
  const ConfigReader& keys = config.keys;
  Glm4Config c{read_decoder(config, family, {.context_length = 131072, .n_kv_heads = 2, .head_dim = 128}), post_norms};
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1.5625e-7);
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.rope = read_rope(config, c, {.share = 0.5, .pairs = true});
  c.qkv_bias = keys.flag("attention_bias", {}, true);
  return std::make_unique<Glm4>(c);
}

std::unique_ptr<Model> read_glm(const ModelConfig& config) { return read(config, "glm", false); }
std::unique_ptr<Model> read_glm4(const ModelConfig& config) { return read(config, "glm4", true); }

Json Glm4::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) return keys;
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  keys["partial_rotary_factor"] = static_cast<double>(c.rope.rotary_dim) / static_cast<double>(c.head_dim);
  return keys;
}

}  // namespace

Family glm_family() {
  return {.name = "glm",
          .architecture = "GlmForCausalLM",
          .title = "GLM-4",
          .paper = "arXiv:2406.12793",
          .source = "src/engine/model/glm4.cpp",
          .make = read_glm};
}

Family glm4_family() {
  return {.name = "glm4",
          .gguf = "glm4",
          .architecture = "Glm4ForCausalLM",
          .title = "GLM-4-0414",
          .paper = "arXiv:2406.12793",
          .source = "src/engine/model/glm4.cpp",
          .make = read_glm4,
          .norms = Form::Norms::own};
}

}  // namespace vitrine
