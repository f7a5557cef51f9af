// OLMo 2 and OLMo 3. Sub-layers read the stream as it is; an RMSNorm acts on what they write. One RMSNorm over the queries of all
// heads and one over the keys, before they rotate. Team OLMo, arXiv:2501.00656. OLMo 3 (2512.13961) has a
// window on three layers of four, which YaRN does not stretch.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct OlmoConfig : DecoderConfig {
  RopeSpec local_rope = {};  // of layers with a window
};

struct OlmoBlock {
  NormedAttention attn;  // W_Q, W_K, W_V, W_O; q_norm [N·H], k_norm [G·H]
  RmsNorm ln1_post{{"ln1_post", "post_attention_layernorm", "post_attention_norm"}};  // [D]
  GatedMlp mlp;                                                                       // W_gate, W_in, W_out
  RmsNorm ln2_post{{"ln2_post", "post_feedforward_layernorm", "post_ffw_norm"}};      // [D]
};

class Olmo final : public RopeDecoder {
 public:
  explicit Olmo(const OlmoConfig& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  const RopeSpec& rope_spec(int64_t layer) const override;

  const OlmoConfig c;
  std::vector<OlmoBlock> blocks;
};

Tensor Olmo::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const OlmoBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  auto [q, k, v] =
      w.attn.qkv(ctx, resid_pre);  // no norm in front; [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  // The norm is of all heads together: its mean square runs over N·H components. #attention
  q = w.attn.q_norm(ctx, merge_heads(ctx, q));                             // [T, N·H] #attention
  k = w.attn.k_norm(ctx, merge_heads(ctx, k));                             // [T, G·H] #attention
  q = rope(ctx, split_heads(ctx, q, c.head_dim), step, rope_spec(layer));  // [T, N, H] #rope
  k = rope(ctx, split_heads(ctx, k, c.head_dim), step, rope_spec(layer));  // [T, G, H] #rope
  q = ctx.hook("attn.hook_rot_q", q);
  k = ctx.hook("attn.hook_rot_k", k);
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));    // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.ln1_post(ctx, w.attn.out(ctx, z)));  // [T, D] #attention #post-norm
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));      // [T, D] #residual

  // SwiGLU: (silu(x W_gateᵀ) ⊙ x W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.ln2_post(ctx, w.mlp(ctx, resid_mid)));  // [T, D] #mlp #post-norm
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));             // [T, D] #residual
}

const RopeSpec& Olmo::rope_spec(int64_t layer) const {
  return c.windows[static_cast<size_t>(layer)] == kNoWindow ? c.rope : c.local_rope;  // #rope
}

Olmo::Olmo(const OlmoConfig& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (OlmoBlock& w : blocks) {
    list.begin_layer();
    list.add_qkv(w.attn);
    list.add(w.attn.q_norm, list.size.NH);
    list.add(w.attn.k_norm, list.size.GH);
    list.add_out(w.attn);
    list.add(w.ln1_post);
    list.add(w.mlp);
    list.add(w.ln2_post);
  }
  end_tensors(list);
}

OlmoConfig read(const ModelConfig& config, const char* family) {
  OlmoConfig c{read_decoder(config, family, {.context_length = 2048, .n_kv_heads = 0})};
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.activation = read_activation(config.keys, "hidden_act", {}, "silu");
  c.qkv_bias = c.o_bias = config.keys.flag("attention_bias", {}, false);
  return c;
}

bool three_of_four(int64_t layer) { return (layer + 1) % 4 != 0; }

// The older form of a config.json has one rope_theta, which transformers gives to the global layers alone.
void read_olmo3_rope(const ModelConfig& config, OlmoConfig& c) {
  constexpr double kTheta = 500000;
  const auto ropes = read_layer_ropes(config, c, c.head_dim, {.theta = kTheta});
  c.rope = ropes.global;
  c.local_rope = ropes.local;
  if (!config.gguf && config.keys.has("rope_theta") && !config.keys.has("rope_parameters") && c.rope.theta != kTheta)
    config.keys.fail("rope_theta",
                     "is not the 500000 of the layers with a window; expected rope_parameters with an object for each type "
                     "of layer, full_attention and sliding_attention");
}

std::unique_ptr<Model> read_olmo3(const ModelConfig& config) {
  OlmoConfig c = read(config, "olmo3");
  c.windows = read_listed_windows(config, c.n_layers, 4096, three_of_four);
  read_olmo3_rope(config, c);
  return std::make_unique<Olmo>(c);
}

// GGUF calls OLMo 3 so, too.
std::unique_ptr<Model> read_olmo2(const ModelConfig& config) {
  if (config.gguf && config.keys.find_count("attention.sliding_window").value_or(0) > 0) return read_olmo3(config);
  OlmoConfig c = read(config, "olmo2");
  c.rope = c.local_rope = read_rope(config, c, {});
  c.windows.assign(static_cast<size_t>(c.n_layers), kNoWindow);
  return std::make_unique<Olmo>(c);
}

Json Olmo::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (c.family == "olmo3") write_listed_windows(keys, c.windows, format);
  if (format == ConfigFormat::gguf) {
    if (keys.contains("attention.sliding_window")) write_layer_ropes(keys, c.rope, c.local_rope, format);
    return keys;
  }
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  if (c.family == "olmo3") write_layer_ropes(keys, c.rope, c.local_rope, format);
  return keys;
}

Family olmo_family_of(const char* name, const char* architecture, const char* title, const char* paper,
                      std::unique_ptr<Model> (*make)(const ModelConfig&)) {
  return {.name = name,
          .gguf = "olmo2",
          .architecture = architecture,
          .title = title,
          .paper = paper,
          .source = "src/engine/model/olmo.cpp",
          .make = make,
          .norms = Form::Norms::own};
}

}  // namespace

Family olmo2_family() { return olmo_family_of("olmo2", "Olmo2ForCausalLM", "OLMo 2", "arXiv:2501.00656", read_olmo2); }

// OLMo 2's text with windows.
Family olmo3_family() { return olmo_family_of("olmo3", "Olmo3ForCausalLM", "OLMo 3", "arXiv:2512.13961", read_olmo3); }

}  // namespace vitrine
