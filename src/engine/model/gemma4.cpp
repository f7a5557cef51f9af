// Gemma 4 (text). Layers of two kinds: with a window, or global with wider heads of which a part rotates. The last layers read
// keys and values of earlier ones. Values are divided by their root mean square. A third sub-layer tells each layer about its
// token from a per-layer embedding. RMSNorm before and after each sub-layer. transformers 5.24, models/gemma4; the per-layer
// embedding and shared keys are those of Gemma 3n. T rows of the step (sequences one after the other), N n_heads, G n_kv_heads
// and H head_dim of the layer, D d_model, F d_ff of the layer, L n_layers, P numbers of a per-layer embedding, V vocab_size.
#include <algorithm>
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/rope.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

// Sizes of one layer.
struct LayerShape {
  int64_t n_kv_heads = 0, head_dim = 0, d_ff = 0;
  int64_t keys_of = -1;  // the earlier layer whose keys and values its queries read; -1: it has its own
};

struct Gemma4Config : DecoderConfig {
  double final_logit_softcapping = 0;
  RopeSpec local_rope = {};                          // of layers with a window
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

// Keys and values are missing where another layer's are read; W_V, too, where values are keys.
struct Gemma4Attention : NormedAttention {
  RmsNorm v_norm{{"attn.v_norm"}};  // [H] its weights are ones
};

// The experts beside the MLP.
struct Gemma4Mixture {
  RmsNorm mlp_post{{"mlp_post", "post_feedforward_layernorm_1", "post_ffw_norm_1"}};  // [D], of what the MLP gives alone
  RmsNorm router_norm{{"router_norm"}};                                               // [D], of what the router reads
  RmsNorm ln2{{"ln2_experts", "pre_feedforward_layernorm_2", "pre_ffw_norm_2"}};      // [D], of what the experts read
  ExpertMlp experts;                                                                  // with X hidden units each
  Vector scales;                                                                      // [E]
  RmsNorm post{{"experts_post", "post_feedforward_layernorm_2", "post_ffw_norm_2"}};  // [D]
};

struct Gemma4PerLayer {
  Weight W_gate;                                                               // [P, D]
  Weight W_out;                                                                // [D, P]
  RmsNorm post{{"per_layer_post", "post_per_layer_input_norm", "post_norm"}};  // [D]
};

struct Gemma4Block {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};                               // [D]
  Gemma4Attention attn;                                                               // W_Q, W_K, W_V, W_O of the layer's heads
  RmsNorm ln1_post{{"ln1_post", "post_attention_layernorm", "post_attention_norm"}};  // [D]
  RmsNorm ln2{{"ln2", "pre_feedforward_layernorm", "ffn_norm"}};                      // [D]
  GatedMlp mlp;                                                                       // W_gate, W_in, W_out
  Gemma4Mixture mixture;
  RmsNorm ln2_post{{"ln2_post", "post_feedforward_layernorm", "post_ffw_norm"}};  // [D]
  Gemma4PerLayer per_layer;
  Vector scale;  // [1]
};

// What flows from block to block: the stream [T, D], what the per-layer embedding says [T, L·P], and the keys and values
// [T, G, H] that later layers read, of layers with a window and of global ones.
enum Flow : size_t { kStream, kPerLayer, kKeys, kValues = kKeys + 2, kFlows = kValues + 2 };
using State = std::array<Tensor, kFlows>;

class Gemma4 final : public RopeDecoder {
 public:
  explicit Gemma4(const Gemma4Config& c);
  Tensor residual(Context& ctx, const Step& step) const override;
  Head head() const override { return {unembedding(), c.final_logit_softcapping}; }  // #head
  std::span<const Expert> experts(int64_t layer) const override {
    return blocks[static_cast<size_t>(layer)].mixture.experts.experts;
  }
  Json config(ConfigFormat format) const override;

 private:
  void block_of_state(Context& ctx, const Step& step, int layer, State& state) const;
  Attention::Heads heads(Context& ctx, const Step& step, int layer, const Tensor& x, const State& state) const;
  Tensor per_layer(Context& ctx, int layer, const Tensor& x, const State& state) const;
  Tensor mixture(Context& ctx, int layer, const Tensor& x) const;
  Tensor per_layer_inputs(Context& ctx, const Step& step, const Tensor& x) const;
  AttentionSpec attention_spec(int64_t layer) const override;
  const RopeSpec& rope_spec(int64_t layer) const override { return c.is_global(layer) ? c.rope : c.local_rope; }
  double stream_scale(int64_t layer) const;
  /// Whether later layers read this one's keys and values.
  bool gives_keys(int64_t layer) const { return c.shared_layers > 0 && layer == c.last_own(c.is_global(layer)); }
  void add_layer(PartList& list, int64_t layer);
  void add_mixture(PartList& list, Gemma4Mixture& w) const;

  const Gemma4Config c;
  Weight W_E_per_layer, W_per_layer;                                                                     // [V, L·P], [L·P, D]
  RmsNorm per_layer_norm{{"per_layer_norm", "model.per_layer_projection_norm", "per_layer_proj_norm"}};  // [P]
  std::vector<Gemma4Block> blocks;
  std::vector<float> ones_;  // the weights of a norm that has none
};

// Queries, and keys and values of this layer or of the one whose it reads: [T, N, H], [T, G, H] twice.
Attention::Heads Gemma4::heads(Context& ctx, const Step& step, int layer, const Tensor& x, const State& state) const {
  const Gemma4Attention& w = blocks[static_cast<size_t>(layer)].attn;
  const LayerShape s = c.shape_of(layer);
  const size_t kind = c.is_global(layer) ? 1 : 0;
  Tensor q, k = state[kKeys + kind], v = state[kValues + kind];
  const bool own = s.keys_of < 0, own_values = own && !(kind == 1 && c.values_are_keys);
  if (own_values) {
    const auto made = linear(ctx, x, {w.W_Q, w.W_K, w.W_V});  // one pass over x #heads
    q = made[0], k = made[1], v = made[2];
  } else if (own) {
    const auto made = linear(ctx, x, {w.W_Q, w.W_K});
    q = made[0], k = v = made[1];
  } else {
    q = linear(ctx, x, w.W_Q);
  }
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, s.head_dim));  // [T, N, H] #heads
  if (own) {
    k = ctx.hook("attn.hook_k", split_heads(ctx, k, s.head_dim));  // [T, G, H] #heads
    v = own_values ? split_heads(ctx, v, s.head_dim) : k;          // #heads
    v = ctx.hook("attn.hook_v", w.v_norm(ctx, v));                 // [T, G, H] #heads
  }
  q = w.q_norm(ctx, q);                                                            // [T, N, H] #attention
  if (own) k = w.k_norm(ctx, k);                                                   // [T, G, H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, rope_spec(layer)));           // #rope
  if (own) k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, rope_spec(layer)));  // #rope
  return {q, k, v};
}

void Gemma4::block_of_state(Context& ctx, const Step& step, int layer, State& state) const {
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

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  const auto [q, k, v] = heads(ctx, step, layer, x, state);
  const int keys_of = static_cast<int>(s.keys_of < 0 ? layer : s.keys_of);                 // whose keys the cache holds
  const Tensor z = attention(ctx, "attn", q, k, v, step, keys_of, attention_spec(layer));  // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.ln1_post(ctx, w.attn.out(ctx, z)));  // [T, D] #attention #post-norm
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));      // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // GeGLU: (gelu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  Tensor mlp_out = w.mlp(ctx, y);  // [T, D] #mlp
  if (c.experts) {
    mlp_out = w.mixture.mlp_post(ctx, mlp_out);                   // [T, D] #post-norm
    mlp_out = add(ctx, mlp_out, mixture(ctx, layer, resid_mid));  // [T, D] #mlp
  }
  mlp_out = ctx.hook("hook_mlp_out", w.ln2_post(ctx, mlp_out));  // [T, D] #post-norm
  Tensor resid_post = add(ctx, resid_mid, mlp_out);              // [T, D] #residual
  if (c.per_layer_dim > 0) resid_post = add(ctx, resid_post, per_layer(ctx, layer, resid_post, state));
  resid_post = scale(ctx, resid_post, stream_scale(layer));  // [T, D]

  if (gives_keys(layer) && !copies) kept[kKeys + kind] = k, kept[kValues + kind] = v;
  if (copies) ctx.copy(k, kept[kKeys + kind]);
  if (copies) ctx.copy(v, kept[kValues + kind]);
  kept[kStream] = frame.keep(ctx.hook("hook_resid_post", resid_post));
  state = kept;
}

double Gemma4::stream_scale(int64_t layer) const {
  const Vector& scale = blocks[static_cast<size_t>(layer)].scale;
  return scale ? scale.at<double>(0) : 1;
}

// The third sub-layer: norm((gelu(x W_gateᵀ) ⊙ what the per-layer embedding says to this layer) W_outᵀ).
Tensor Gemma4::per_layer(Context& ctx, int layer, const Tensor& x, const State& state) const {
  const Gemma4PerLayer& w = blocks[static_cast<size_t>(layer)].per_layer;
  Tensor hidden;
  {
    const auto scope = ctx.scope("per_layer");
    const Tensor gate = ctx.hook("hook_pre", linear(ctx, x, w.W_gate));                                 // [T, P]
    const Tensor told = take_columns(ctx, state[kPerLayer], layer * c.per_layer_dim, c.per_layer_dim);  // [T, P]
    hidden = ctx.hook("hook_post", gated(ctx, gate, ctx.hook("hook_pre_linear", told), c.activation));  // [T, P]
  }
  return ctx.hook("hook_per_layer_out", w.post(ctx, linear(ctx, hidden, w.W_out)));  // [T, D]
}

// The experts beside the MLP. Their router reads the stream x itself, divided by its root mean square: x / rms(x) ⊙ s / √D.
Tensor Gemma4::mixture(Context& ctx, int layer, const Tensor& x) const {
  const Gemma4Mixture& w = blocks[static_cast<size_t>(layer)].mixture;
  const ExpertMlp& mixture = w.experts;
  const double width = std::sqrt(static_cast<double>(c.d_model));
  const Tensor routed = scale(ctx, w.router_norm(ctx, x), 1 / width);                                                    // [T, D]
  return w.post(ctx, expert_mlp(ctx, "experts", w.ln2(ctx, x), mixture.router, mixture.experts, mixture.spec, routed));  // [T, D]
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
  const Tensor normed = per_layer_norm(ctx, projected);                                                           // [T, L, P]
  const Tensor told = ctx.hook("hook_per_layer", scale(ctx, add(ctx, normed, looked_up), std::sqrt(0.5)));
  return frame.keep(told.view({told.rows(), L * P}));
}

AttentionSpec Gemma4::attention_spec(int64_t layer) const {
  AttentionSpec spec = RopeDecoder::attention_spec(layer);
  spec.scale = 1;  // queries and keys are normalized #scale
  return spec;
}

Tensor Gemma4::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  State state;
  state[kStream] = embedded(ctx, step);  // [T, D]
  if (c.per_layer_dim > 0) state[kPerLayer] = per_layer_inputs(ctx, step, state[kStream]);
  for (int layer = 0; layer < c.n_layers; ++layer) ctx.checkpoint(&Gemma4::block_of_state, *this, step, layer, state);  // #layers
  return final_norm(ctx, state[kStream]);  // [T, D] #final-norm
}

Gemma4::Gemma4(const Gemma4Config& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim U{"vocab_size_per_layer_input", c.per_layer_vocab};
  const Dim P{"per_layer_dim", c.per_layer_dim}, LP{"n_layers * per_layer_dim", c.n_layers * c.per_layer_dim};
  ones_.assign(static_cast<size_t>(std::max(c.head_dim, c.global_head_dim)), 1.0f);
  PartList list = begin_tensors();
  if (c.per_layer_dim > 0) {
    list.add(W_E_per_layer, "W_E_per_layer", "model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", U, LP);
    list.add(W_per_layer, "W_per_layer", "model.per_layer_model_projection.weight", "per_layer_model_proj.weight", LP,
             list.size.D);
    list.add(per_layer_norm, P);
  }
  for (int64_t layer = 0; layer < c.n_layers; ++layer) add_layer(list, layer);
  end_tensors(list);
}

void Gemma4::add_layer(PartList& list, int64_t layer) {
  const LayerShape s = c.shape_of(layer);
  ModelShape sizes = c;
  sizes.n_kv_heads = s.n_kv_heads, sizes.head_dim = s.head_dim, sizes.d_ff = s.d_ff;
  list.size = TensorSizes(sizes);
  const auto& [D, F, V, H, NH, GH] = list.size;
  Gemma4Block& w = blocks[static_cast<size_t>(layer)];
  list.begin_layer();
  list.add(w.ln1);
  list.add(w.attn.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D);
  if (s.keys_of < 0) {
    list.add(w.attn.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D);
    if (!c.values_are_keys || !c.is_global(layer))
      list.add(w.attn.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
  }
  list.add(w.attn.q_norm, H);
  if (s.keys_of < 0) list.add(w.attn.k_norm, H);
  w.attn.v_norm.w = {.name = "ones", .data = ones_.data(), .size = s.head_dim, .grad = {}};
  w.attn.v_norm.spec = c.norm;
  list.add_out(w.attn);
  list.add(w.ln1_post);
  list.add(w.ln2);
  list.add(w.mlp);
  list.add(w.ln2_post);
  if (c.experts) add_mixture(list, w.mixture);
  if (c.per_layer_dim > 0) {
    const Dim P{"per_layer_dim", c.per_layer_dim};
    list.add(w.per_layer.W_gate, "per_layer.W_gate", "per_layer_input_gate.weight", "inp_gate.weight", P, D);
    list.add(w.per_layer.W_out, "per_layer.W_out", "per_layer_projection.weight", "proj.weight", D, P);
    list.add(w.per_layer.post);
  }
  list.add(w.scale, "scale", "layer_scalar", "layer_output_scale.weight", {"1", 1}, {.constant = true});
}

// Both files stack the matrices of all experts, and each expert's gate and up.
void Gemma4::add_mixture(PartList& list, Gemma4Mixture& w) const {
  const Dim D = list.size.D, E{"n_experts", c.experts->count}, X{"expert d_ff", c.experts->d_ff};
  list.add(w.mlp_post);
  list.add(w.router_norm.w, "router_norm.w", "router.scale", "ffn_gate_inp.scale", D);
  w.router_norm.spec = c.norm;
  list.add(w.ln2);
  list.add(w.experts.router, "mlp.W_router", "router.proj.weight", "ffn_gate_inp.weight", E, D);
  list.add(w.scales, "expert_scales.w", "router.per_expert_scale", "ffn_down_exps.scale", E);
  w.experts.spec = *c.experts;
  w.experts.spec.scales = &w.scales;
  const int n = static_cast<int>(E.size);
  w.experts.experts.resize(static_cast<size_t>(n));
  for (int e = 0; e < n; ++e) {
    Expert& expert = w.experts.experts[static_cast<size_t>(e)];
    const std::string ours = "mlp.experts." + std::to_string(e) + ".";
    const auto part = [&](int i) {
      return StoredLayout{.part = i, .parts = 2, .expert = e, .experts = n, .experts_stacked = true};
    };
    list.add(expert.gate, ours + "W_gate", "experts.gate_up_proj", "ffn_gate_up_exps.weight", X, D, part(0));
    list.add(expert.in, ours + "W_in", "experts.gate_up_proj", "ffn_gate_up_exps.weight", X, D, part(1));
    list.add(expert.out, ours + "W_out", "experts.down_proj", "ffn_down_exps.weight", D, X,
             {.expert = e, .experts = n, .experts_stacked = true});
  }
  list.add(w.post);
}

// The one number that all global layers, or all with a window, have in a list of one for each layer.
int64_t of_kind(const ConfigReader& keys, const char* key, const Gemma4Config& c, bool global, int64_t absent) {
  const std::vector<int64_t> list = keys.counts(key);
  if (list.size() == 1 && list[0] > 0) return list[0];
  if (list.size() == 1) keys.fail(key, "expected a number above 0, or one for each layer");
  if (static_cast<int64_t>(list.size()) != c.n_layers)
    keys.fail(key, "has " + std::to_string(list.size()) + " entries; expected one number above 0, or one for each of " +
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
  if (c.n_heads % c.n_kv_heads != 0 || c.n_heads % c.global_kv_heads != 0)
    keys.fail("attention.head_count_kv", "does not divide the " + std::to_string(c.n_heads) + " heads of attention.head_count");
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
  if (format == ConfigFormat::huggingface && keys["sliding_window"].is_null()) keys["sliding_window"] = 512;  // must be a number
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
          .source = "src/engine/model/gemma4.cpp",
          .make = read_gemma4_text,
          .norms = Form::Norms::own,
          .has_forms = false,
          .scores_sequences = false};
}

}  // namespace vitrine
