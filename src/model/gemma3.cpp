// Gemma 3 (text). Five sliding-window layers to each global one, with a RoPE base of their own; an RMSNorm on each head's query
// and key instead of Gemma 2's soft caps; RMSNorm before and after each sub-layer. Gemma Team, arXiv:2503.19786, section 2.
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

struct Gemma3Config : DecoderConfig {
  double query_pre_attn_scalar = 0, final_logit_softcapping = 0;
  RopeSpec local_rope = {};           // of layers with a window
  std::vector<int64_t> windows = {};  // of each layer; kNoWindow: global
};

struct Gemma3Block {
  Vector ln1, ln1_post, ln2, ln2_post;  // [D]
  Vector q_norm, k_norm;                // [H]
  Weight W_Q;                           // [N·H, D]
  Weight W_K, W_V;                      // [G·H, D]
  Weight W_O;                           // [D, N·H]
  Weight W_gate, W_in;                  // [F, D]
  Weight W_out;                         // [D, F]
};

class Gemma3 final : public Model {
 public:
  explicit Gemma3(const Gemma3Config& c);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  AttentionSpec attention_spec(int64_t layer) const;
  const RopeSpec& rope_spec(int64_t layer) const;

  const Gemma3Config c;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<Gemma3Block> blocks;
  Vector ln_final;  // [D]
};

Tensor Gemma3::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Gemma3Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = rms_norm(ctx, "ln1", resid_pre, w.ln1, c.norm);        // [T, D] #norm
  auto [q, k, v] = linear(ctx, x, {w.W_Q, w.W_K, w.W_V});                 // one pass over x #attention
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, c.head_dim));           // [T, N, H] #attention
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, c.head_dim));           // [T, G, H] #attention
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, c.head_dim));           // [T, G, H] #attention
  q = rms_norm(ctx, "attn.q_norm", q, w.q_norm, c.norm);                  // [T, N, H] #attention
  k = rms_norm(ctx, "attn.k_norm", k, w.k_norm, c.norm);                  // [T, G, H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, rope_spec(layer)));  // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, rope_spec(layer)));  // #rope

  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));           // [T, N, H] #attention
  Tensor attn_out = attention_output(ctx, "attn", z, w.W_O);                                      // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", rms_norm(ctx, "ln1_post", attn_out, w.ln1_post, c.norm));  // #post-norm
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));             // [T, D] #residual

  const Tensor y = rms_norm(ctx, "ln2", resid_mid, w.ln2, c.norm);  // [T, D] #norm
  // GeGLU: (gelu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  Tensor mlp_out = gated_mlp(ctx, "mlp", y, w.W_gate, w.W_in, w.W_out, c.activation);          // [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", rms_norm(ctx, "ln2_post", mlp_out, w.ln2_post, c.norm));  // #post-norm
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));                // [T, D] #residual
}

AttentionSpec Gemma3::attention_spec(int64_t layer) const {
  // The scale comes from query_pre_attn_scalar, not from head_dim: in the 27B model they differ (168 against 128).
  return {.scale = 1 / std::sqrt(c.query_pre_attn_scalar),  // #scale
          .window = c.windows[static_cast<size_t>(layer)],  // #window
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

const RopeSpec& Gemma3::rope_spec(int64_t layer) const {
  return c.windows[static_cast<size_t>(layer)] == kNoWindow ? c.rope : c.local_rope;  // #rope
}

Tensor Gemma3::embedded(Context& ctx, const Step& step) const {
  const Tensor x = embed(ctx, step.tokens(), W_E);  // [T, D] #embed
  // The original rounds the factor to bf16 when it runs in bf16; in f32 it is the square root itself.
  return ctx.hook("hook_embed", scale(ctx, x, c.embedding_scale));  // #embedding-scale
}

Tensor Gemma3::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                              // [T, D]
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(&Gemma3::block, *this, step, layer, x);  // #layers
  return rms_norm(ctx, "ln_final", x, ln_final, c.norm);  // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Gemma3::head() const { return {c.tied ? &W_E : &W_U, c.final_logit_softcapping}; }  // #head

BlockSpec Gemma3::block_spec(int64_t layer) const {
  return {.attention = attention_spec(layer), .rope = rope_spec(layer), .norm = c.norm, .activation = c.activation};
}

Gemma3::Gemma3(const Gemma3Config& config) : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  const Dim H{"head_dim", c.head_dim};
  const StoredLayout norm{.gguf_offset = 1};  // GGUF holds the factor 1 + w
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    Gemma3Block& w = blocks[static_cast<size_t>(layer)];
    list.layer(layer, "model.layers.");
    list.add(w.ln1, "ln1.w", "input_layernorm.weight", "attn_norm.weight", D, norm);
    list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D);
    list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D);
    list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
    list.add(w.q_norm, "attn.q_norm.w", "self_attn.q_norm.weight", "attn_q_norm.weight", H, norm);
    list.add(w.k_norm, "attn.k_norm.w", "self_attn.k_norm.weight", "attn_k_norm.weight", H, norm);
    list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH);
    list.add(w.ln1_post, "ln1_post.w", "post_attention_layernorm.weight", "post_attention_norm.weight", D, norm);
    list.add(w.ln2, "ln2.w", "pre_feedforward_layernorm.weight", "ffn_norm.weight", D, norm);
    list.add(w.W_gate, "mlp.W_gate", "mlp.gate_proj.weight", "ffn_gate.weight", F, D);
    list.add(w.W_in, "mlp.W_in", "mlp.up_proj.weight", "ffn_up.weight", F, D);
    list.add(w.W_out, "mlp.W_out", "mlp.down_proj.weight", "ffn_down.weight", D, F);
    list.add(w.ln2_post, "ln2_post.w", "post_feedforward_layernorm.weight", "post_ffw_norm.weight", D, norm);
  }
  list.end_layers();
  list.add(ln_final, "ln_final.w", "model.norm.weight", "output_norm.weight", D, norm);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
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
          .source = "src/model/gemma3.cpp",
          .make = read_gemma3_text,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"},
          .norms = Form::Norms::own};
}

}  // namespace vitrine
