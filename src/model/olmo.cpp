// OLMo 2 and OLMo 3. Sub-layers read the stream as it is; an RMSNorm acts on what they write. One RMSNorm over the queries of all
// heads and one over the keys, before they turn. Team OLMo, arXiv:2501.00656. OLMo 3 (2512.13961) has a
// window on three layers of four, which YaRN does not stretch.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <algorithm>
#include <cmath>

#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct OlmoConfig : DecoderConfig {
  bool attention_bias = false;
  RopeSpec local_rope = {};           // of layers with a window
  std::vector<int64_t> windows = {};  // of each layer; kNoWindow: global
};

struct OlmoBlock {
  Weight W_Q;                 // [N·H, D]
  Weight W_K, W_V;            // [G·H, D]
  Vector q_norm;              // [N·H]
  Vector k_norm;              // [G·H]
  Weight W_O;                 // [D, N·H]
  Vector ln1_post, ln2_post;  // [D]
  Weight W_gate, W_in;        // [F, D]
  Weight W_out;               // [D, F]
};

class Olmo final : public Model {
 public:
  explicit Olmo(const OlmoConfig& c);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  AttentionSpec attention_spec(int64_t layer) const;
  const RopeSpec& rope_spec(int64_t layer) const;

  const OlmoConfig c;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<OlmoBlock> blocks;
  Vector ln_final;  // [D]
};

Tensor Olmo::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const OlmoBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  auto [q, k, v] = linear(ctx, resid_pre, {w.W_Q, w.W_K, w.W_V});  // no norm in front #attention
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, c.head_dim));    // [T, N, H] #attention
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, c.head_dim));    // [T, G, H] #attention
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, c.head_dim));    // [T, G, H] #attention
  // The norm is of all heads together: its mean square runs over N·H components. #attention
  q = rms_norm(ctx, "attn.q_norm", merge_heads(ctx, q), w.q_norm, c.norm);  // [T, N·H] #attention
  k = rms_norm(ctx, "attn.k_norm", merge_heads(ctx, k), w.k_norm, c.norm);  // [T, G·H] #attention
  q = rope(ctx, split_heads(ctx, q, c.head_dim), step, rope_spec(layer));   // [T, N, H] #rope
  k = rope(ctx, split_heads(ctx, k, c.head_dim), step, rope_spec(layer));   // [T, G, H] #rope
  q = ctx.hook("attn.hook_rot_q", q);
  k = ctx.hook("attn.hook_rot_k", k);

  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));           // [T, N, H] #attention
  Tensor attn_out = attention_output(ctx, "attn", z, w.W_O);                                      // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", rms_norm(ctx, "ln1_post", attn_out, w.ln1_post, c.norm));  // #post-norm
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));             // [T, D] #residual

  // SwiGLU: (silu(x W_gateᵀ) ⊙ x W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  Tensor mlp_out = gated_mlp(ctx, "mlp", resid_mid, w.W_gate, w.W_in, w.W_out, c.activation);  // [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", rms_norm(ctx, "ln2_post", mlp_out, w.ln2_post, c.norm));  // #post-norm
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));                // [T, D] #residual
}

AttentionSpec Olmo::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .window = c.windows[static_cast<size_t>(layer)],          // #window
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

const RopeSpec& Olmo::rope_spec(int64_t layer) const {
  return c.windows[static_cast<size_t>(layer)] == kNoWindow ? c.rope : c.local_rope;  // #rope
}

Tensor Olmo::embedded(Context& ctx, const Step& step) const {
  return ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
}

Tensor Olmo::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                            // [T, D]
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(&Olmo::block, *this, step, layer, x);  // #layers
  return rms_norm(ctx, "ln_final", x, ln_final, c.norm);                                                     // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Olmo::head() const { return {c.tied ? &W_E : &W_U}; }  // #head

BlockSpec Olmo::block_spec(int64_t layer) const {
  return {.attention = attention_spec(layer), .rope = rope_spec(layer), .norm = c.norm, .activation = c.activation};
}

Olmo::Olmo(const OlmoConfig& config) : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    OlmoBlock& w = blocks[static_cast<size_t>(layer)];
    list.layer(layer, "model.layers.");
    list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D);
    list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D);
    list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
    if (c.attention_bias) {
      list.add(w.W_Q.bias, "attn.b_Q", "self_attn.q_proj.bias", "attn_q.bias", NH);
      list.add(w.W_K.bias, "attn.b_K", "self_attn.k_proj.bias", "attn_k.bias", GH);
      list.add(w.W_V.bias, "attn.b_V", "self_attn.v_proj.bias", "attn_v.bias", GH);
    }
    list.add(w.q_norm, "attn.q_norm.w", "self_attn.q_norm.weight", "attn_q_norm.weight", NH);
    list.add(w.k_norm, "attn.k_norm.w", "self_attn.k_norm.weight", "attn_k_norm.weight", GH);
    list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH);
    if (c.attention_bias) list.add(w.W_O.bias, "attn.b_O", "self_attn.o_proj.bias", "attn_output.bias", D);
    list.add(w.ln1_post, "ln1_post.w", "post_attention_layernorm.weight", "post_attention_norm.weight", D);
    list.add(w.W_gate, "mlp.W_gate", "mlp.gate_proj.weight", "ffn_gate.weight", F, D);
    list.add(w.W_in, "mlp.W_in", "mlp.up_proj.weight", "ffn_up.weight", F, D);
    list.add(w.W_out, "mlp.W_out", "mlp.down_proj.weight", "ffn_down.weight", D, F);
    list.add(w.ln2_post, "ln2_post.w", "post_feedforward_layernorm.weight", "post_ffw_norm.weight", D);
  }
  list.end_layers();
  list.add(ln_final, "ln_final.w", "model.norm.weight", "output_norm.weight", D);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

OlmoConfig read(const ModelConfig& config, const char* family) {
  OlmoConfig c{read_decoder(config, family, {.context_length = 2048, .n_kv_heads = 0})};
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.activation = read_activation(config.keys, "hidden_act", {}, "silu");
  c.attention_bias = config.keys.flag("attention_bias", {}, false);
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
  keys["attention_bias"] = c.attention_bias;
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
          .source = "src/model/olmo.cpp",
          .make = make,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight"},
          .norms = Form::Norms::own};
}

}  // namespace

Family olmo2_family() { return olmo_family_of("olmo2", "Olmo2ForCausalLM", "OLMo 2", "arXiv:2501.00656", read_olmo2); }

// OLMo 2's text with windows.
Family olmo3_family() { return olmo_family_of("olmo3", "Olmo3ForCausalLM", "OLMo 3", "arXiv:2512.13961", read_olmo3); }

}  // namespace vitrine
