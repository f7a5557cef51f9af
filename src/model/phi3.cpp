// Phi-3 and Phi-4-mini. Llama's text with queries, keys and values in one stored matrix, the gate and what it gates in another;
// part of a head may turn, and LongRoPE turns long prompts otherwise than short ones. Abdin et al., arXiv:2404.14219, section 2;
// Ding et al., 2402.13753 (LongRoPE).
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

struct Phi3Config : DecoderConfig {
  double resid_dropout = 0;
  std::vector<int64_t> windows = {};  // of each layer; kNoWindow: global
};

struct Phi3Block {
  Vector ln1, ln2;      // [D]
  Weight W_Q;           // [N·H, D]
  Weight W_K, W_V;      // [G·H, D]
  Weight W_O;           // [D, N·H]
  Weight W_gate, W_in;  // [F, D]
  Weight W_out;         // [D, F]
};

// Where dropout acts; a layer's sites are four apart.
enum Phi3Site : uint32_t { kPhi3Attention, kPhi3Mlp, kPhi3Pattern };
uint32_t phi3_site(Phi3Site site, int64_t layer) { return static_cast<uint32_t>(layer) * 4 + site; }

class Phi3 final : public Model {
 public:
  explicit Phi3(const Phi3Config& c);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  AttentionSpec attention_spec(int64_t layer) const;

  const Phi3Config c;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<Phi3Block> blocks;
  Vector ln_final;  // [D]
};

Tensor Phi3::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Phi3Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = rms_norm(ctx, "ln1", resid_pre, w.ln1, c.norm);  // [T, D] #norm
  auto [q, k, v] = linear(ctx, x, {w.W_Q, w.W_K, w.W_V});           // one pass over x #attention
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, c.head_dim));     // [T, N, H] #attention
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, c.head_dim));     // [T, G, H] #attention
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, c.head_dim));     // [T, G, H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));      // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));      // #rope

  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = attention_output(ctx, "attn", z, w.W_O);                             // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.resid_dropout, phi3_site(kPhi3Attention, layer)));
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = rms_norm(ctx, "ln2", resid_mid, w.ln2, c.norm);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  Tensor mlp_out = gated_mlp(ctx, "mlp", y, w.W_gate, w.W_in, w.W_out, c.activation);  // [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.resid_dropout, phi3_site(kPhi3Mlp, layer)));
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec Phi3::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .window = c.windows[static_cast<size_t>(layer)],          // #window
          .dropout = c.attn_dropout,
          .dropout_site = phi3_site(kPhi3Pattern, layer)};
}

Tensor Phi3::embedded(Context& ctx, const Step& step) const {
  return ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
}

Tensor Phi3::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                            // [T, D]
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(&Phi3::block, *this, step, layer, x);  // #layers
  return rms_norm(ctx, "ln_final", x, ln_final, c.norm);                                                     // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Phi3::head() const { return {c.tied ? &W_E : &W_U, 0}; }  // #head

BlockSpec Phi3::block_spec(int64_t layer) const {
  BlockSpec spec{.attention = attention_spec(layer), .rope = c.rope, .norm = c.norm, .activation = c.activation};
  spec.dropout = c.resid_dropout;
  spec.attention_dropout_site = phi3_site(kPhi3Attention, layer);
  spec.mlp_dropout_site = phi3_site(kPhi3Mlp, layer);
  return spec;
}

Phi3::Phi3(const Phi3Config& config) : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  const Dim all{"(n_heads + 2 * n_kv_heads) * head_dim", NH.size + 2 * GH.size};
  const StoredLayout q{.part = 0, .parts = 3, .before = 0, .whole = all},
      k{.part = 1, .parts = 3, .before = NH.size, .whole = all},
      v{.part = 2, .parts = 3, .before = NH.size + GH.size, .whole = all};
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    Phi3Block& w = blocks[static_cast<size_t>(layer)];
    list.layer(layer, "model.layers.");
    list.add(w.ln1, "ln1.w", "input_layernorm.weight", "attn_norm.weight", D);
    list.add(w.W_Q, "attn.W_Q", "self_attn.qkv_proj.weight", "attn_qkv.weight", NH, D, q);
    list.add(w.W_K, "attn.W_K", "self_attn.qkv_proj.weight", "attn_qkv.weight", GH, D, k);
    list.add(w.W_V, "attn.W_V", "self_attn.qkv_proj.weight", "attn_qkv.weight", GH, D, v);
    list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH);
    list.add(w.ln2, "ln2.w", "post_attention_layernorm.weight", "ffn_norm.weight", D);
    list.add(w.W_gate, "mlp.W_gate", "mlp.gate_up_proj.weight", "ffn_up.weight", F, D, {.part = 0, .parts = 2});
    list.add(w.W_in, "mlp.W_in", "mlp.gate_up_proj.weight", "ffn_up.weight", F, D, {.part = 1, .parts = 2});
    list.add(w.W_out, "mlp.W_out", "mlp.down_proj.weight", "ffn_down.weight", D, F);
  }
  list.end_layers();
  list.add(ln_final, "ln_final.w", "model.norm.weight", "output_norm.weight", D);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_phi3(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Phi3Config c{read_decoder(config, "phi3", {.context_length = 4096, .n_kv_heads = 0})};
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.rope = read_rope(config, c, {.share = 1.0, .only_longrope = true, .original_context = 4096});
  c.resid_dropout = read_dropout(keys, "resid_pdrop", 0.0);
  keys.ignore({"embd_pdrop"});  // the reference reads it and uses it nowhere
  // llama.cpp writes 0 for no window.
  const bool window = !config.gguf || keys.find_count("attention.sliding_window").value_or(0) > 0;
  c.windows = window ? read_windows(config, c.n_layers, kNoWindow, [](int64_t) { return true; })
                     : std::vector<int64_t>(static_cast<size_t>(c.n_layers), kNoWindow);
  refuse_flags(keys, {"attention_bias", "mlp_bias", "lm_head_bias"});
  return std::make_unique<Phi3>(c);
}

Json Phi3::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    keys["attention.sliding_window"] = c.windows.empty() ? kNoWindow : c.windows[0];
    keys["rope.scaling.original_context_length"] = static_cast<int64_t>(c.rope.original_context);
    return keys;
  }
  keys["hidden_act"] = activation_key(c.activation);
  keys["resid_pdrop"] = c.resid_dropout;
  keys["sliding_window"] = c.windows.empty() || c.windows[0] == kNoWindow ? Json(nullptr) : Json(c.windows[0]);
  keys["original_max_position_embeddings"] = static_cast<int64_t>(c.rope.original_context);
  keys["partial_rotary_factor"] = static_cast<double>(c.rope.rotary_dim) / static_cast<double>(c.head_dim);
  return keys;
}

}  // namespace

Family phi3_family() {
  return {.name = "phi3",
          .gguf = "phi3",
          .architecture = "Phi3ForCausalLM",
          .title = "Phi-3",
          .paper = "arXiv:2404.14219",
          .source = "src/model/phi3.cpp",
          .make = read_phi3,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_factors_short.weight", "rope_factors_long.weight"},
          .dropout = {.embedding = nullptr, .attention = "attention_dropout", .residual = "resid_pdrop"}};
}

}  // namespace vitrine
