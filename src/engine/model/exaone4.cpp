// EXAONE 4. Sub-layers read the stream as it is; an RMSNorm acts on what they write, and one on each head's query and key. Where
// there are windows, RoPE acts within them alone: the layers that see everything rotate nothing. LG AI Research,
// arXiv:2507.11407, section 2.1. T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D
// d_model, F d_ff, V vocab_size.
#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct Exaone4Block {
  NormedAttention attn;                                                               // W_Q, W_K, W_V, W_O; q_norm, k_norm
  RmsNorm ln1_post{{"ln1_post", "post_attention_layernorm", "post_attention_norm"}};  // [D]
  GatedMlp mlp;                                                                       // W_gate, W_in, W_out
  RmsNorm ln2_post{{"ln2_post", "post_feedforward_layernorm", "post_ffw_norm"}};      // [D]
};

class Exaone4 final : public RopeDecoder {
 public:
  explicit Exaone4(const DecoderConfig& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const DecoderConfig c;
  std::vector<Exaone4Block> blocks;
};

Tensor Exaone4::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Exaone4Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  // No norm in front; [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v.
  auto [q, k, v] = w.attn.qkv(ctx, resid_pre);                                   // #attention
  q = w.attn.q_norm(ctx, q);                                                     // [T, N, H] #attention
  k = w.attn.k_norm(ctx, k);                                                     // [T, G, H] #attention
  if (!c.has_windows() || c.windows[static_cast<size_t>(layer)] != kNoWindow) {  // #rope
    q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                 // #rope
    k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                 // #rope
  }
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));    // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.ln1_post(ctx, w.attn.out(ctx, z)));  // [T, D] #attention #post-norm
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));      // [T, D] #residual

  // SwiGLU: (silu(x W_gateᵀ) ⊙ x W_inᵀ) W_outᵀ of the stream x, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.ln2_post(ctx, w.mlp(ctx, resid_mid)));  // [T, D] #mlp #post-norm
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));             // [T, D] #residual
}

Exaone4::Exaone4(const DecoderConfig& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (Exaone4Block& w : blocks) list.add_layer(w.attn, w.ln1_post, w.mlp, w.ln2_post);
  end_tensors(list);
}

// A layer of every sliding_window_pattern has none; published configurations list the layers.
std::vector<int64_t> read_exaone_windows(const ModelConfig& config, int64_t n_layers) {
  const ConfigReader& keys = config.keys;
  const bool none = keys.mentions("sliding_window") && !keys.has("sliding_window");
  if (config.gguf || none || keys.has("layer_types")) keys.ignore({"sliding_window_pattern"});
  const int64_t every = config.gguf || none || keys.has("layer_types") ? 4 : keys.positive("sliding_window_pattern", {}, 4);
  return read_listed_windows(config, n_layers, config.gguf ? kNoWindow : 4096,
                             [&](int64_t layer) { return (layer + 1) % every != 0; });
}

std::unique_ptr<Model> read_exaone4(const ModelConfig& config) {
  DecoderConfig c = read_decoder(config, "exaone4", {.context_length = 2048, .n_kv_heads = 32});
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.activation = read_activation(config.keys, "hidden_act", {}, "silu");
  c.rope = read_rope(config, c, {});
  c.windows = read_exaone_windows(config, c.n_layers);
  const ConfigReader& keys = config.keys;
  const bool none =
      config.gguf ? !keys.has("attention.sliding_window") : keys.mentions("sliding_window") && !keys.has("sliding_window");
  if (!none && !c.has_windows())
    keys.fail(config.gguf ? "attention.sliding_window" : "sliding_window",
              "is not null, but no layer has a window: the reference would rotate nothing at all. Expected null");
  return std::make_unique<Exaone4>(c);
}

Json Exaone4::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  write_listed_windows(keys, c.windows, format);
  if (format == ConfigFormat::gguf) return keys;
  keys["hidden_act"] = activation_key(c.activation);
  return keys;
}

}  // namespace

Family exaone4_family() {
  return {.name = "exaone4",
          .gguf = "exaone4",
          .architecture = "Exaone4ForCausalLM",
          .title = "EXAONE 4",
          .paper = "arXiv:2507.11407",
          .source = "src/engine/model/exaone4.cpp",
          .make = read_exaone4,
          .norms = Form::Norms::own};
}

}  // namespace vitrine
