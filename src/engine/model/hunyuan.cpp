// Hunyuan, dense. Grouped-query attention whose queries and keys get an RMSNorm on each head after they were rotated, SwiGLU,
// RMSNorm before each sub-layer; RoPE's base is stretched by a factor alpha. Tencent, https://github.com/Tencent-Hunyuan; norms
// of queries and keys: Dehghani et al., arXiv:2302.05442, section 2. T rows of the step (sequences one after the other), N
// n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct HunyuanBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};                             // [D]
  Attention attn;                                                                   // W_Q, W_K, W_V, W_O
  RmsNorm q_norm{{"attn.rot_q_norm", "self_attn.query_layernorm", "attn_q_norm"}};  // [H]
  RmsNorm k_norm{{"attn.rot_k_norm", "self_attn.key_layernorm", "attn_k_norm"}};    // [H]
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};                     // [D]
  GatedMlp mlp;                                                                     // W_gate, W_in, W_out
};

class Hunyuan final : public RopeDecoder {
 public:
  explicit Hunyuan(const DecoderConfig& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const DecoderConfig c;
  std::vector<HunyuanBlock> blocks;
};

Tensor Hunyuan::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const HunyuanBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  q = w.q_norm(ctx, q);                                                                  // [T, N, H] #attention
  k = w.k_norm(ctx, k);                                                                  // [T, G, H] #attention
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.attn.out(ctx, z));                 // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));    // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.mlp(ctx, y));                // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

Hunyuan::Hunyuan(const DecoderConfig& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (HunyuanBlock& w : blocks) {
    list.add_layer(w.ln1, w.attn);
    list.add(w.q_norm, list.size.H);
    list.add(w.k_norm, list.size.H);
    list.add(w.ln2);
    list.add(w.mlp);
  }
  end_tensors(list);
}

// alpha, of a type that files call dynamic, stretches the base whatever the length of the prompt; GGUF holds the product.
void stretch_base(const ModelConfig& config, DecoderConfig& c) {
  auto settings = config.keys.find_object("rope_parameters");
  if (!settings) settings = config.keys.find_object("rope_scaling");
  if (!settings) return;
  // What published files say besides, of other rules.
  settings->ignore({"beta_fast", "beta_slow", "mscale", "mscale_all_dim"});
  const auto alpha = settings->find_number("alpha");
  if (!alpha || *alpha == 0) return;
  if (settings->string("rope_type", {"type"}, "default") != "dynamic") return;
  if (!(*alpha > 0)) settings->fail("alpha", "must be above 0");
  const auto d = static_cast<double>(c.head_dim);
  if (c.head_dim <= 2) settings->fail("alpha", "needs heads of more than 2 components");
  c.rope.theta = static_cast<double>(static_cast<float>(c.rope.theta * std::pow(*alpha, d / (d - 2))));  // GGUF's is f32
}

std::unique_ptr<Model> read_hunyuan(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  DecoderConfig c = read_decoder(config, "hunyuan_v1_dense", {.context_length = 2048, .n_kv_heads = 0});
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.rope = read_rope(config, c, {});
  if (!config.gguf) stretch_base(config, c);
  c.qkv_bias = c.o_bias = keys.flag("attention_bias", {}, false);
  refuse_flags(keys, {"use_cla", "mlp_bias"});
  if (!config.gguf && !keys.flag("use_qk_norm", {}, true))
    keys.fail("use_qk_norm", "is false; expected true: the reference normalizes always");
  keys.ignore({"attention_head_dim",
               "cla_share_factor",
               "norm_type",
               "num_experts",
               "use_rotary_pos_emb",
               "eod_token_id",
               "im_end_id",
               "im_newline_id",
               "im_start_id",
               "image_token_id",
               "mask_init_id",
               "org_vocab_size",
               "pad_id",
               "sep_token_id",
               "text_start_id",
               "text_end_id",
               "class_num",
               "pool_type",
               "add_classification_head",
               "eod_token",
               "rope.scaling.factor"});
  return std::make_unique<Hunyuan>(c);
}

Json Hunyuan::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) return keys;
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  return keys;
}

}  // namespace

Family hunyuan_v1_dense_family() {
  return {.name = "hunyuan_v1_dense",
          .gguf = "hunyuan-dense",
          .architecture = "HunYuanDenseV1ForCausalLM",
          .title = "Hunyuan",
          .paper = "https://github.com/Tencent-Hunyuan/Hunyuan-7B",
          .source = "src/engine/model/hunyuan.cpp",
          .make = read_hunyuan,
          .has_forms = false};
}

}  // namespace vitrine
