// Gemma 4 (text). Layers of two kinds: with a window, or global with wider heads of which a part turns. The last layers read keys
// and values of earlier ones. Values are divided by their root mean square. A third sub-layer tells each layer about its token
// from a per-layer embedding. RMSNorm before and after each sub-layer. transformers 5.24, models/gemma4; the per-layer embedding
// and shared keys are those of Gemma 3n. T rows of the step (sequences one after the other), N n_heads, G n_kv_heads and H
// head_dim of the layer, D d_model, F d_ff of the layer, L n_layers, P numbers of a per-layer embedding, V vocab_size.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct Gemma4Config : DecoderConfig {
  double final_logit_softcapping = 0;
  RopeSpec local_rope = {};                          // of layers with a window
  std::vector<int64_t> windows = {};                 // of each layer; kNoWindow: global
  int64_t global_head_dim = 0, global_kv_heads = 0;  // of global layers
  int64_t shared_layers = 0;                         // the last ones, which read keys and values of earlier layers
  bool double_wide = false;                          // their MLPs have twice the width
  bool values_are_keys = false;                      // global layers have no W_V
  int64_t per_layer_dim = 0, per_layer_vocab = 0;    // 0: no per-layer embedding
  std::optional<ExpertSpec> experts = {};            // beside the MLP of each layer

  bool is_global(int64_t layer) const { return windows[static_cast<size_t>(layer)] == kNoWindow; }
  bool is_shared(int64_t layer) const { return layer >= n_layers - shared_layers; }
  /// The last layer of the same kind that has keys and values of its own, or -1.
  int64_t last_own(bool global) const {
    int64_t layer = n_layers - shared_layers - 1;
    while (layer >= 0 && is_global(layer) != global) --layer;
    return layer;
  }
  LayerShape shape_of(int64_t layer) const {
    const bool global = is_global(layer), shared = is_shared(layer);
    return {.n_kv_heads = global ? global_kv_heads : n_kv_heads,
            .head_dim = global ? global_head_dim : head_dim,
            .d_ff = double_wide && shared ? 2 * d_ff : d_ff,
            .keys_of = shared ? last_own(global) : -1};
  }
};

struct Gemma4Block {
  Vector ln1, ln1_post, ln2, ln2_post;  // [D]
  Vector q_norm, k_norm;                // [H]
  Weight W_Q;                           // [N·H, D]
  Weight W_K, W_V;                      // [G·H, D]; none where another layer's keys are read, no W_V where values are keys
  Weight W_O;                           // [D, N·H]
  Weight W_gate, W_in;                  // [F, D]
  Weight W_out;                         // [D, F]
  Weight per_layer_gate;                // [P, D]
  Weight per_layer_out;                 // [D, P]
  Vector per_layer_post;                // [D]
  Vector scale;                         // [1]
  // With experts:
  Vector mlp_post;                  // [D], of what the MLP gives alone
  Vector router_norm, ln2_experts;  // [D], of what the router and the experts read
  Weight router;                    // [E, D]
  Vector expert_scales;             // [E]
  std::vector<Expert> experts;      // E of them: gate and in [X, D], out [D, X] with X hidden units
  Vector experts_post;              // [D]
};

// What flows from block to block: the stream [T, D], what the per-layer embedding says [T, L·P], and the keys and values
// [T, G, H] that later layers read, of layers with a window and of global ones.
enum Flow : size_t { kStream, kPerLayer, kKeys, kValues = kKeys + 2, kFlows = kValues + 2 };
using State = std::array<Tensor, kFlows>;

class Gemma4 final : public Model {
 public:
  explicit Gemma4(const Gemma4Config& c);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts; }
  Json config(ConfigFormat format) const override;

 private:
  struct Heads {
    Tensor q, k, v;
  };
  void block(Context& ctx, const Step& step, int layer, State& state) const;
  Heads heads(Context& ctx, const Step& step, int layer, const Tensor& x, const State& state) const;
  Tensor per_layer(Context& ctx, int layer, const Tensor& x, const State& state) const;
  Tensor mixture(Context& ctx, int layer, const Tensor& x) const;
  ExpertSpec expert_spec(int64_t layer) const;
  Tensor per_layer_inputs(Context& ctx, const Step& step, const Tensor& x) const;
  AttentionSpec attention_spec(int64_t layer) const;
  const RopeSpec& rope_spec(int64_t layer) const { return c.is_global(layer) ? c.rope : c.local_rope; }
  /// Whether later layers read this one's keys and values.
  bool gives_keys(int64_t layer) const { return c.shared_layers > 0 && layer == c.last_own(c.is_global(layer)); }
  void add_layer(TensorList& list, int64_t layer);
  void add_experts(TensorList& list, Gemma4Block& w) const;

  const Gemma4Config c;
  Weight W_E;                         // [V, D]
  Weight W_U;                         // [V, D], if it is not the embedding
  Weight W_E_per_layer, W_per_layer;  // [V, L·P], [L·P, D]
  Vector per_layer_norm;              // [P]
  std::vector<Gemma4Block> blocks;
  Vector ln_final;                 // [D]
  std::vector<float> ones_;        // the weights of a norm that has none
  Vector local_ones, global_ones;  // [H]
};

// Queries, and keys and values of this layer or of the one whose it reads: [T, N, H], [T, G, H] twice.
Gemma4::Heads Gemma4::heads(Context& ctx, const Step& step, int layer, const Tensor& x, const State& state) const {
  const Gemma4Block& w = blocks[static_cast<size_t>(layer)];
  const LayerShape s = c.shape_of(layer);
  const size_t kind = c.is_global(layer) ? 1 : 0;
  Tensor q, k = state[kKeys + kind], v = state[kValues + kind];
  const bool own = s.keys_of < 0, own_values = own && !(kind == 1 && c.values_are_keys);
  if (own_values) {
    const auto made = linear(ctx, x, {w.W_Q, w.W_K, w.W_V});  // one pass over x #attention
    q = made[0], k = made[1], v = made[2];
  } else if (own) {
    const auto made = linear(ctx, x, {w.W_Q, w.W_K});
    q = made[0], k = v = made[1];
  } else {
    q = linear(ctx, x, w.W_Q);
  }
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, s.head_dim));  // [T, N, H] #attention
  if (own) {
    k = ctx.hook("attn.hook_k", split_heads(ctx, k, s.head_dim));  // [T, G, H] #attention
    v = own_values ? split_heads(ctx, v, s.head_dim) : k;          // #attention
    v = ctx.hook("attn.hook_v", rms_norm(ctx, "attn.v_norm", v, kind == 1 ? global_ones : local_ones, c.norm));  // #attention
  }
  q = rms_norm(ctx, "attn.q_norm", q, w.q_norm, c.norm);                           // #attention
  if (own) k = rms_norm(ctx, "attn.k_norm", k, w.k_norm, c.norm);                  // #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, rope_spec(layer)));           // #rope
  if (own) k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, rope_spec(layer)));  // #rope
  return {q, k, v};
}

void Gemma4::block(Context& ctx, const Step& step, int layer, State& state) const {
  const Gemma4Block& w = blocks[static_cast<size_t>(layer)];
  const LayerShape s = c.shape_of(layer);
  const auto scope = ctx.scope("blocks", layer);  // every name below becomes blocks.<layer>.<name>
  State kept = state;                             // a tape's tensors live on; without one, what is kept lies outside the frame
  const size_t kind = c.is_global(layer) ? 1 : 0;
  const bool copies = gives_keys(layer) && ctx.tape() == nullptr;
  if (copies) kept[kKeys + kind] = ctx.empty({step.rows(), s.n_kv_heads, s.head_dim});
  if (copies) kept[kValues + kind] = ctx.empty({step.rows(), s.n_kv_heads, s.head_dim});
  auto frame = ctx.frame(state[kStream]);                               // this block's scratch and its input end here
  const Tensor resid_pre = ctx.hook("hook_resid_pre", state[kStream]);  // [T, D]

  const Tensor x = rms_norm(ctx, "ln1", resid_pre, w.ln1, c.norm);  // [T, D] #norm
  const auto [q, k, v] = heads(ctx, step, layer, x, state);
  const int keys_of = static_cast<int>(s.keys_of < 0 ? layer : s.keys_of);                        // whose keys the cache holds
  const Tensor z = attention(ctx, "attn", q, k, v, step, keys_of, attention_spec(layer));         // [T, N, H] #attention
  Tensor attn_out = attention_output(ctx, "attn", z, w.W_O);                                      // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", rms_norm(ctx, "ln1_post", attn_out, w.ln1_post, c.norm));  // #post-norm
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));             // [T, D] #residual

  const Tensor y = rms_norm(ctx, "ln2", resid_mid, w.ln2, c.norm);  // [T, D] #norm
  // GeGLU: (gelu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  Tensor mlp_out = gated_mlp(ctx, "mlp", y, w.W_gate, w.W_in, w.W_out, c.activation);  // [T, D] #mlp
  if (c.experts) {
    mlp_out = rms_norm(ctx, "mlp_post", mlp_out, w.mlp_post, c.norm);  // [T, D] #post-norm
    mlp_out = add(ctx, mlp_out, mixture(ctx, layer, resid_mid));       // [T, D] #mlp
  }
  mlp_out = ctx.hook("hook_mlp_out", rms_norm(ctx, "ln2_post", mlp_out, w.ln2_post, c.norm));  // #post-norm
  Tensor resid_post = add(ctx, resid_mid, mlp_out);                                            // [T, D] #residual
  if (c.per_layer_dim > 0) resid_post = add(ctx, resid_post, per_layer(ctx, layer, resid_post, state));
  resid_post = scale(ctx, resid_post, block_spec(layer).stream_scale);  // [T, D]

  if (gives_keys(layer) && !copies) kept[kKeys + kind] = k, kept[kValues + kind] = v;
  if (copies) std::memcpy(kept[kKeys + kind].raw(), k.raw(), k.bytes());
  if (copies) std::memcpy(kept[kValues + kind].raw(), v.raw(), v.bytes());
  kept[kStream] = frame.keep(ctx.hook("hook_resid_post", resid_post));
  state = kept;
}

// The third sub-layer: norm((gelu(x W_gateᵀ) ⊙ what the per-layer embedding says to this layer) W_outᵀ).
Tensor Gemma4::per_layer(Context& ctx, int layer, const Tensor& x, const State& state) const {
  const Gemma4Block& w = blocks[static_cast<size_t>(layer)];
  Tensor hidden;
  {
    const auto scope = ctx.scope("per_layer");
    const Tensor gate = ctx.hook("hook_pre", linear(ctx, x, w.per_layer_gate));                         // [T, P]
    const Tensor told = take_columns(ctx, state[kPerLayer], layer * c.per_layer_dim, c.per_layer_dim);  // [T, P]
    hidden = ctx.hook("hook_post", gated(ctx, gate, ctx.hook("hook_pre_linear", told), c.activation));  // [T, P]
  }
  const Tensor out = linear(ctx, hidden, w.per_layer_out);  // [T, D]
  return ctx.hook("hook_per_layer_out", rms_norm(ctx, "per_layer_post", out, w.per_layer_post, c.norm));
}

// The experts beside the MLP. Their router reads the stream x itself, divided by its root mean square: x / rms(x) ⊙ s / √D.
Tensor Gemma4::mixture(Context& ctx, int layer, const Tensor& x) const {
  const Gemma4Block& w = blocks[static_cast<size_t>(layer)];
  const double width = std::sqrt(static_cast<double>(c.d_model));
  const Tensor routed = scale(ctx, rms_norm(ctx, "router_norm", x, w.router_norm, c.norm), 1 / width);  // [T, D]
  const Tensor y = rms_norm(ctx, "ln2_experts", x, w.ln2_experts, c.norm);                              // [T, D]
  const Tensor out = expert_mlp(ctx, "experts", y, w.router, w.experts, expert_spec(layer), routed);    // [T, D]
  return rms_norm(ctx, "experts_post", out, w.experts_post, c.norm);
}

ExpertSpec Gemma4::expert_spec(int64_t layer) const {
  ExpertSpec spec = *c.experts;
  spec.scales = &blocks[static_cast<size_t>(layer)].expert_scales;
  return spec;
}

// What each layer is told of its token, from its embedding x and a table of its own: (norm(x Wᵀ / √D) + E[token] · √P) / √2.
Tensor Gemma4::per_layer_inputs(Context& ctx, const Step& step, const Tensor& x) const {
  auto frame = ctx.frame();
  const int64_t L = c.n_layers, P = c.per_layer_dim;
  const auto by_layers = [&](const Tensor& t) { return t.view({t.rows(), L, P}); };
  const double width = std::sqrt(static_cast<double>(c.d_model)), narrow = std::sqrt(static_cast<double>(P));
  const Tensor looked_up =
      ctx.hook("hook_per_layer_embed", by_layers(scale(ctx, embed(ctx, step.tokens(), W_E_per_layer), narrow)));  // [T, L, P]
  const Tensor projected = by_layers(scale(ctx, linear(ctx, x, W_per_layer), 1 / width));                         // [T, L, P]
  const Tensor normed = rms_norm(ctx, "per_layer_norm", projected, per_layer_norm, c.norm);                       // [T, L, P]
  const Tensor told = ctx.hook("hook_per_layer", scale(ctx, add(ctx, normed, looked_up), std::sqrt(0.5)));
  return frame.keep(told.view({told.rows(), L * P}));
}

AttentionSpec Gemma4::attention_spec(int64_t layer) const {
  return {.scale = 1,                                       // queries and keys are normalised #scale
          .window = c.windows[static_cast<size_t>(layer)],  // #window
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

Tensor Gemma4::embedded(Context& ctx, const Step& step) const {
  const Tensor x = embed(ctx, step.tokens(), W_E);  // [T, D] #embed
  // The original rounds the factor to bf16 when it runs in bf16; in f32 it is the square root itself.
  return ctx.hook("hook_embed", scale(ctx, x, c.embedding_scale));  // #embedding-scale
}

Tensor Gemma4::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  State state;
  state[kStream] = embedded(ctx, step);  // [T, D]
  if (c.per_layer_dim > 0) state[kPerLayer] = per_layer_inputs(ctx, step, state[kStream]);
  for (int layer = 0; layer < c.n_layers; ++layer) ctx.checkpoint(&Gemma4::block, *this, step, layer, state);  // #layers
  return rms_norm(ctx, "ln_final", state[kStream], ln_final, c.norm);  // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Gemma4::head() const { return {c.tied ? &W_E : &W_U, c.final_logit_softcapping}; }  // #head

BlockSpec Gemma4::block_spec(int64_t layer) const {
  const Vector& scale = blocks[static_cast<size_t>(layer)].scale;
  return {.attention = attention_spec(layer),
          .rope = rope_spec(layer),
          .norm = c.norm,
          .activation = c.activation,
          .experts = c.experts ? std::optional(expert_spec(layer)) : std::nullopt,
          .experts_beside = c.experts.has_value(),
          .shape = c.shape_of(layer),
          .value_norm = true,
          .per_layer_dim = c.per_layer_dim,
          .stream_scale = scale ? scale.at<double>(0) : 1};
}

void Gemma4::add_layer(TensorList& list, int64_t layer) {
  const LayerShape s = c.shape_of(layer);
  const Dim D{"d_model", c.d_model}, F{"d_ff", s.d_ff}, H{"head_dim", s.head_dim}, P{"per_layer_dim", c.per_layer_dim};
  const Dim NH{"n_heads * head_dim", c.n_heads * s.head_dim}, GH{"n_kv_heads * head_dim", s.n_kv_heads * s.head_dim};
  Gemma4Block& w = blocks[static_cast<size_t>(layer)];
  list.layer(layer, "model.layers.");
  list.add(w.ln1, "ln1.w", "input_layernorm.weight", "attn_norm.weight", D);
  list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D);
  if (s.keys_of < 0) {
    list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D);
    if (!c.values_are_keys || !c.is_global(layer)) list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
  }
  list.add(w.q_norm, "attn.q_norm.w", "self_attn.q_norm.weight", "attn_q_norm.weight", H);
  if (s.keys_of < 0) list.add(w.k_norm, "attn.k_norm.w", "self_attn.k_norm.weight", "attn_k_norm.weight", H);
  list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH);
  list.add(w.ln1_post, "ln1_post.w", "post_attention_layernorm.weight", "post_attention_norm.weight", D);
  list.add(w.ln2, "ln2.w", "pre_feedforward_layernorm.weight", "ffn_norm.weight", D);
  list.add(w.W_gate, "mlp.W_gate", "mlp.gate_proj.weight", "ffn_gate.weight", F, D);
  list.add(w.W_in, "mlp.W_in", "mlp.up_proj.weight", "ffn_up.weight", F, D);
  list.add(w.W_out, "mlp.W_out", "mlp.down_proj.weight", "ffn_down.weight", D, F);
  list.add(w.ln2_post, "ln2_post.w", "post_feedforward_layernorm.weight", "post_ffw_norm.weight", D);
  if (c.experts) add_experts(list, w);
  if (c.per_layer_dim > 0) {
    list.add(w.per_layer_gate, "per_layer.W_gate", "per_layer_input_gate.weight", "inp_gate.weight", P, D);
    list.add(w.per_layer_out, "per_layer.W_out", "per_layer_projection.weight", "proj.weight", D, P);
    list.add(w.per_layer_post, "per_layer_post.w", "post_per_layer_input_norm.weight", "post_norm.weight", D);
  }
  list.add(w.scale, "scale", "layer_scalar", "layer_output_scale.weight", {"1", 1}, {.constant = true});
}

// Both files stack the matrices of all experts, and each expert's gate and up.
void Gemma4::add_experts(TensorList& list, Gemma4Block& w) const {
  const Dim D{"d_model", c.d_model}, E{"n_experts", c.experts->count}, X{"expert d_ff", c.experts->d_ff};
  list.add(w.mlp_post, "mlp_post.w", "post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight", D);
  list.add(w.router_norm, "router_norm.w", "router.scale", "ffn_gate_inp.scale", D);
  list.add(w.ln2_experts, "ln2_experts.w", "pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight", D);
  list.add(w.router, "mlp.W_router", "router.proj.weight", "ffn_gate_inp.weight", E, D);
  list.add(w.expert_scales, "expert_scales.w", "router.per_expert_scale", "ffn_down_exps.scale", E);
  const int n = static_cast<int>(c.experts->count);
  w.experts.resize(static_cast<size_t>(n));
  for (int e = 0; e < n; ++e) {
    Expert& expert = w.experts[static_cast<size_t>(e)];
    const std::string ours = "mlp.experts." + std::to_string(e) + ".";
    const auto part = [&](int i) {
      return StoredLayout{.part = i, .parts = 2, .expert = e, .experts = n, .experts_stacked = true};
    };
    list.add(expert.gate, ours + "W_gate", "experts.gate_up_proj", "ffn_gate_up_exps.weight", X, D, part(0));
    list.add(expert.in, ours + "W_in", "experts.gate_up_proj", "ffn_gate_up_exps.weight", X, D, part(1));
    list.add(expert.out, ours + "W_out", "experts.down_proj", "ffn_down_exps.weight", D, X,
             {.expert = e, .experts = n, .experts_stacked = true});
  }
  list.add(w.experts_post, "experts_post.w", "post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight", D);
}

Gemma4::Gemma4(const Gemma4Config& config) : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, V{"vocab_size", c.vocab_size}, U{"vocab_size_per_layer_input", c.per_layer_vocab};
  const Dim P{"per_layer_dim", c.per_layer_dim}, LP{"n_layers * per_layer_dim", c.n_layers * c.per_layer_dim};
  ones_.assign(static_cast<size_t>(std::max(c.head_dim, c.global_head_dim)), 1.0f);
  local_ones = {.name = "ones", .data = ones_.data(), .size = c.head_dim, .grad = {}};
  global_ones = {.name = "ones", .data = ones_.data(), .size = c.global_head_dim, .grad = {}};
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  if (c.per_layer_dim > 0) {
    list.add(W_E_per_layer, "W_E_per_layer", "model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", U, LP);
    list.add(W_per_layer, "W_per_layer", "model.per_layer_model_projection.weight", "per_layer_model_proj.weight", LP, D);
    list.add(per_layer_norm, "per_layer_norm.w", "model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", P);
  }
  for (int64_t layer = 0; layer < c.n_layers; ++layer) add_layer(list, layer);
  list.end_layers();
  list.add(ln_final, "ln_final.w", "model.norm.weight", "output_norm.weight", D);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

// The one number that all global layers, or all with a window, have in a list of one for each layer.
int64_t of_kind(const ConfigReader& keys, const char* key, const Gemma4Config& c, bool global, int64_t absent) {
  const std::vector<int64_t> list = keys.counts(key);
  if (list.size() == 1) return list[0];
  if (static_cast<int64_t>(list.size()) != c.n_layers)
    keys.fail(key, "has " + std::to_string(list.size()) + " entries; expected one, or one for each of " +
                       std::to_string(c.n_layers) + " layers");
  int64_t found = 0;
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    if (c.is_global(layer) != global) continue;
    const int64_t here = list[static_cast<size_t>(layer)];
    if (here < 1 || (found != 0 && here != found))
      keys.fail(key, "differs between layers of one kind; expected one number above 0");
    found = here;
  }
  return found > 0 ? found : absent;
}

void read_gguf_sizes(const ConfigReader& keys, Gemma4Config& c) {
  c.global_head_dim = keys.positive("attention.key_length");
  c.head_dim = keys.positive("attention.key_length_swa", {"attention.value_length_swa"}, c.global_head_dim);
  c.n_kv_heads = of_kind(keys, "attention.head_count_kv", c, false, c.n_heads);
  c.global_kv_heads = of_kind(keys, "attention.head_count_kv", c, true, c.n_kv_heads);
  c.shared_layers = keys.count("attention.shared_kv_layers", {}, 0);
  const std::vector<int64_t> widths = keys.counts("feed_forward_length");
  if (widths.empty() || widths[0] < 1) keys.fail("feed_forward_length", "is missing or 0; expected the hidden units of an MLP");
  c.d_ff = widths[0];
  c.double_wide = widths.size() > 1 && widths.back() == 2 * c.d_ff;
  for (int64_t layer = 0; layer < c.n_layers && widths.size() > 1; ++layer)
    if (static_cast<int64_t>(widths.size()) != c.n_layers || widths[static_cast<size_t>(layer)] != c.shape_of(layer).d_ff)
      keys.fail("feed_forward_length",
                "is no list that Gemma 4 has; expected one number for each layer, twice as large in those that "
                "attention.shared_kv_layers counts from the end");
}

// Newer files hold what global layers have of their own as per_layer_config: {"4": {"head_dim": 512}}.
void read_layer_configs(const ConfigReader& keys, Gemma4Config& c) {
  const auto all = keys.find_object("per_layer_config");
  if (!all) return;
  c.global_head_dim = c.head_dim;
  c.global_kv_heads = c.n_kv_heads;
  bool first = true;
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    const auto own = all->find_object(std::to_string(layer));
    const int64_t head_dim = own ? own->positive("head_dim", {}, c.head_dim) : c.head_dim,
                  kv_heads = own ? own->positive("num_key_value_heads", {}, c.n_kv_heads) : c.n_kv_heads;
    if (c.is_global(layer) && first) c.global_head_dim = head_dim, c.global_kv_heads = kv_heads, first = false;
    const LayerShape expected = c.shape_of(layer);
    if (head_dim != expected.head_dim || kv_heads != expected.n_kv_heads)
      keys.fail("per_layer_config", "gives layer " + std::to_string(layer) + " other sizes than layers of its kind; expected " +
                                        std::to_string(expected.head_dim) + " components of a head and " +
                                        std::to_string(expected.n_kv_heads) + " key and value heads");
  }
}

void read_huggingface_sizes(const ConfigReader& keys, Gemma4Config& c) {
  c.n_kv_heads = keys.positive("num_key_value_heads", {}, 4);
  c.head_dim = keys.positive("head_dim", {}, 256);
  c.global_head_dim = keys.positive("global_head_dim", {}, 512);
  const auto kv_heads = keys.find_positive("num_global_key_value_heads");
  c.global_kv_heads = c.values_are_keys ? kv_heads.value_or(c.n_kv_heads) : c.n_kv_heads;
  c.shared_layers = keys.count("num_kv_shared_layers", {}, 0);
  c.d_ff = keys.positive("intermediate_size", {}, 9216);
  c.double_wide = keys.flag("use_double_wide_mlp", {}, false);
  read_layer_configs(keys, c);
}

void check_sharing(const ConfigReader& keys, const Gemma4Config& c) {
  const char* const key = keys.has("attention.shared_kv_layers") ? "attention.shared_kv_layers" : "num_kv_shared_layers";
  if (c.shared_layers >= c.n_layers)
    keys.fail(key, "leaves no layer with keys and values of its own; expected fewer than " + std::to_string(c.n_layers));
  for (int64_t layer = 0; layer < c.n_layers; ++layer)
    if (c.is_shared(layer) && c.last_own(c.is_global(layer)) < 0)
      keys.fail(key, "lets layer " + std::to_string(layer) +
                         " read keys and values of an earlier layer with the same window, "
                         "and there is none");
}

std::unique_ptr<Model> read_gemma4_text(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Gemma4Config c;
  c.family = "gemma4_text";
  c.d_model = keys.positive("hidden_size", {"embedding_length"}, config.gguf ? std::nullopt : std::optional<int64_t>(2304));
  c.n_layers = read_layers(keys, "num_hidden_layers", {"block_count"});
  c.n_heads = keys.positive("num_attention_heads", {"attention.head_count"});
  c.vocab_size = keys.positive("vocab_size", {}, 262144);
  c.context_length = keys.positive("max_position_embeddings", {"context_length"}, 131072);
  c.attn_dropout = read_dropout(keys, "attention_dropout", 0.0);
  c.norm = {.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6)};
  c.tied = keys.flag("tie_word_embeddings", {}, true);
  c.embedding_scale = std::sqrt(static_cast<double>(c.d_model));
  c.activation = read_activation(keys, "hidden_activation", {}, "gelu_pytorch_tanh");
  c.windows = read_listed_windows(config, c.n_layers, 512, [](int64_t layer) { return (layer + 1) % 6 != 0; });
  if (!config.gguf) c.windows.back() = kNoWindow;  // whatever the list says
  c.values_are_keys = keys.flag("attention_k_eq_v", {}, false);
  config.gguf ? read_gguf_sizes(keys, c) : read_huggingface_sizes(keys, c);
  check_heads(keys, c.n_heads, c.n_kv_heads);
  check_heads(keys, c.n_heads, c.global_kv_heads);
  check_product(keys, "num_attention_heads", "n_heads * head_dim", c.n_heads, std::max(c.head_dim, c.global_head_dim),
                kMostInHeads);
  check_product(keys, "hidden_size", "d_model * n_layers", c.d_model, c.n_layers, kMostInStream);
  check_sharing(keys, c);
  const bool silent = !config.gguf && !keys.mentions("hidden_size_per_layer_input");
  c.per_layer_dim = keys.count("hidden_size_per_layer_input", {"embedding_length_per_layer_input"}, silent ? 256 : 0);
  c.per_layer_vocab = keys.positive("vocab_size_per_layer_input", {}, config.gguf ? c.vocab_size : 262144);

  const auto ropes = read_layer_ropes(config, c, c.global_head_dim,
                                      {.theta = 1e6,
                                       .settings = {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}},
                                       .local_theta = 1e4,
                                       .older_keys = false});
  c.rope = ropes.global;
  c.local_rope = ropes.local;
  c.final_logit_softcapping = read_softcap(config, "final_logit_softcapping", 0);
  if (keys.string("use_bidirectional_attention", {}, "vision") != "vision")
    keys.fail("use_bidirectional_attention", "lets text see later text, which is no language model; expected null or vision");
  if (keys.flag("enable_moe_block", {}, keys.has("expert_count"))) {
    c.experts = read_experts(keys, "moe_intermediate_size", "expert_feed_forward_length");
    c.experts->activation = c.activation;
  }
  refuse_flags(keys, {"attention_bias"});
  keys.ignore({"attention.value_length", "attention.value_length_swa", "num_experts", "top_k_experts", "moe_intermediate_size"});
  return std::make_unique<Gemma4>(c);
}

void write_gguf(Json& keys, const Gemma4Config& c) {
  keys["attention.key_length"] = keys["attention.value_length"] = c.global_head_dim;
  keys["attention.key_length_swa"] = keys["attention.value_length_swa"] = c.head_dim;
  keys["attention.head_count_kv"] = c.n_kv_heads;
  if (c.global_kv_heads != c.n_kv_heads) {
    keys["attention.head_count_kv"] = Json::array();
    for (int64_t layer = 0; layer < c.n_layers; ++layer) keys["attention.head_count_kv"].push_back(c.shape_of(layer).n_kv_heads);
  }
  if (c.double_wide) {
    keys["feed_forward_length"] = Json::array();
    for (int64_t layer = 0; layer < c.n_layers; ++layer) keys["feed_forward_length"].push_back(c.shape_of(layer).d_ff);
  }
  keys["attention.shared_kv_layers"] = c.shared_layers;
  keys["embedding_length_per_layer_input"] = c.per_layer_dim;
  keys["rope.dimension_count_swa"] = c.local_rope.rotary_dim;
  if (c.final_logit_softcapping > 0) keys["final_logit_softcapping"] = c.final_logit_softcapping;
  if (c.experts) write_gguf_experts(keys, *c.experts);
}

void write_huggingface(Json& keys, const Gemma4Config& c) {
  keys["global_head_dim"] = c.global_head_dim;
  keys["attention_k_eq_v"] = c.values_are_keys;
  keys["num_global_key_value_heads"] = c.values_are_keys ? Json(c.global_kv_heads) : Json(nullptr);
  if (!c.values_are_keys && c.global_kv_heads != c.n_kv_heads)
    for (int64_t layer = 0; layer < c.n_layers; ++layer)
      if (c.is_global(layer))
        keys["per_layer_config"][std::to_string(layer)] = {{"head_dim", c.global_head_dim},
                                                           {"num_key_value_heads", c.global_kv_heads}};
  keys["num_kv_shared_layers"] = c.shared_layers;
  keys["use_double_wide_mlp"] = c.double_wide;
  keys["hidden_size_per_layer_input"] = c.per_layer_dim;
  keys["vocab_size_per_layer_input"] = c.per_layer_vocab;
  keys["final_logit_softcapping"] = c.final_logit_softcapping > 0 ? Json(shortest(c.final_logit_softcapping)) : Json(nullptr);
  keys["hidden_activation"] = activation_key(c.activation);
  keys["attention_bias"] = false;
  keys["enable_moe_block"] = c.experts.has_value();
  if (!c.experts) return;
  keys["num_experts"] = c.experts->count;
  keys["top_k_experts"] = c.experts->per_row;
  keys["moe_intermediate_size"] = c.experts->d_ff;
}

Json Gemma4::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  write_listed_windows(keys, c.windows, format);
  write_layer_ropes(keys, c.rope, c.local_rope, format);
  format == ConfigFormat::gguf ? write_gguf(keys, c) : write_huggingface(keys, c);
  return keys;
}

}  // namespace

Family gemma4_text_family() {
  return {.name = "gemma4_text",
          .gguf = "gemma4",
          .architecture = "Gemma4ForCausalLM",
          .title = "Gemma 4",
          .paper = "arXiv:2503.19786",
          .source = "src/model/gemma4.cpp",
          .make = read_gemma4_text,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight"},
          .norms = Form::Norms::own,
          .has_forms = false};
}

}  // namespace vitrine
