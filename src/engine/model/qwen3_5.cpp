// Qwen 3.5 (text). Three layers with the gated delta rule, a recurrence, to each layer with attention; RMSNorm before each
// sub-layer, SwiGLU. Attention has grouped queries, an RMSNorm on each head's query and key, RoPE on a part of each head, and a
// gate on what its heads read. Yang et al., arXiv:2412.06464, section 3.3 (the recurrence's block); Qiu et al., 2505.06708 (the
// gate). Qwen 3.5's mixture and Qwen3 Next (whose files order the recurrence's inputs by key heads) are configurations of the
// same text, with experts and a shared one behind a gate. T rows of the step (sequences one after the other), N n_heads, G
// n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size; M heads of the recurrence, J key heads, each of which M / J heads
// share, A d_key, B d_value, K taps of the convolution.
#include <algorithm>
#include <array>
#include <cmath>

#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/causal_conv.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/gated_delta.h"
#include "ops/linear.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

constexpr double kLengthEps = 1e-6;  // under the root of a query's and key's length

struct Qwen35Config : DecoderConfig {
  std::vector<bool> attends = {};  // of each layer; the others have the recurrence
  DeltaSpec delta = {};
  ExpertSpec experts = {};       // count 0: every layer has an MLP
  std::vector<bool> dense = {};  // layers that have one although others have experts
  int64_t shared = 0;            // units of the shared expert
  // Qwen3 Next: a matrix holds each key head's query, key, values and gates; another one its betas and decays.
  bool joined_qkvz = false, joined_ba = false;

  bool has_experts(int64_t layer) const { return experts.count > 0 && !dense[static_cast<size_t>(layer)]; }
  // What files say and text does not need: the period of layers, and the pairs that rotate with time, height and width.
  int64_t interval = 4;
  std::vector<int64_t> sections = {11, 11, 10};
};

// Attention whose heads' results pass a gate.
struct Qwen35Attention : NormedAttention {
  Weight W_QG;  // [N·2H, D] each head's query, then its gate; in the place of W_Q
};

struct Qwen35Delta {
  Weight W_QKV;                  // [2J·A + M·B, D]
  Weight W_Z;                    // [M·B, D] gates
  Weight W_beta, W_A;            // [M, D]
  Weight W_QKVZ, W_BA;           // [2J·A + 2M·B, D] and [2M, D], in the place of the four
  Vector kernel;                 // [2J·A + M·B, K]
  Vector no_bias;                // the convolution's
  Vector A, dt_bias;             // [M]
  RmsNorm norm{{"delta.norm"}};  // [B]
  Weight W_O;                    // [D, M·B]
};

struct Qwen35Block {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};                     // [D]
  Qwen35Attention attn;                                                     // of a layer with attention
  Qwen35Delta delta;                                                        // of one with the recurrence
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "post_attention_norm"}};  // [D]
  GatedMlp mlp;                                                             // W_gate, W_in, W_out
  ExpertMlp experts;                                                        // in the place of it
  SharedExpert shared;                                                      // beside them, with a gate
};

class Qwen35 final : public RopeDecoder {
 public:
  Qwen35(const Qwen35Config& c, bool stacked);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Tensor first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor attend(Context& ctx, const Step& step, int layer, const Tensor& x) const;
  Tensor recur(Context& ctx, const Step& step, int layer, const Tensor& x) const;
  std::array<Tensor, 4> inputs(Context& ctx, const Qwen35Delta& w, const Tensor& x) const;
  void add_attention(PartList& list, Qwen35Attention& w) const;
  void add_recurrence(PartList& list, Qwen35Delta& w) const;

  const Qwen35Config c;
  std::vector<Qwen35Block> blocks;
};

Tensor Qwen35::attend(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  const Qwen35Attention& w = blocks[static_cast<size_t>(layer)].attn;
  auto [qg, k, v] = linear(ctx, x, {w.W_QG, w.W_K, w.W_V});                                        // one pass over x #heads
  qg = split_heads(ctx, qg, 2 * c.head_dim);                                                       // [T, N, 2H]
  Tensor q = ctx.hook("attn.hook_q", take_columns(ctx, qg, 0, c.head_dim));                        // [T, N, H] #heads
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, c.head_dim));                                    // [T, G, H] #heads
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, c.head_dim));                                    // [T, G, H] #heads
  q = w.q_norm(ctx, q);                                                                            // [T, N, H] #attention
  k = w.k_norm(ctx, k);                                                                            // [T, G, H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                                     // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                                     // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));            // [T, N, H] #attention
  const Tensor gate = ctx.hook("attn.hook_gate", take_columns(ctx, qg, c.head_dim, c.head_dim));   // [T, N, H] #attention
  const Tensor gated_z = ctx.hook("attn.hook_gated_z", gated(ctx, gate, z, Activation::sigmoid));  // [T, N, H] #attention
  return w.out(ctx, gated_z);                                                                      // [T, D] #attention
}

// What the recurrence reads: queries, keys and values, gates, betas and decays. #delta
std::array<Tensor, 4> Qwen35::inputs(Context& ctx, const Qwen35Delta& w, const Tensor& x) const {
  if (!c.joined_ba) return linear(ctx, x, {w.W_QKV, w.W_Z, w.W_beta, w.W_A});  // one pass #delta
  const DeltaSpec& d = c.delta;
  const int64_t each = d.n_heads / d.n_key_heads, values = each * d.d_value;
  const auto part = [&](const Tensor& all, int64_t first, int64_t n) {  // of each key head #delta
    const Tensor heads = split_heads(ctx, all, all.row_size() / d.n_key_heads);
    return merge_heads(ctx, take_columns(ctx, heads, first, n));
  };
  const Tensor ba = linear(ctx, x, w.W_BA);                             // [T, 2M] #delta
  const Tensor beta = part(ba, 0, each), decay = part(ba, each, each);  // [T, M] #delta
  if (!c.joined_qkvz) return {linear(ctx, x, w.W_QKV), linear(ctx, x, w.W_Z), beta, decay};
  const Tensor all = linear(ctx, x, w.W_QKVZ);  // [T, 2J·A + 2M·B] #delta
  const Tensor q = part(all, 0, d.d_key), k = part(all, d.d_key, d.d_key), v = part(all, 2 * d.d_key, values);
  const auto row = [](const Tensor& t) { return t.view({t.rows(), 1, t.row_size()}); };
  const Tensor qkv = join_heads(ctx, join_heads(ctx, row(q), row(k)), row(v));  // [T, 1, 2J·A + M·B] #delta
  return {merge_heads(ctx, qkv), part(all, 2 * d.d_key + values, values), beta, decay};
}

// A state for each head instead of keys and values for each position: it forgets, and learns what v is under k. #delta
Tensor Qwen35::recur(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  const Qwen35Delta& w = blocks[static_cast<size_t>(layer)].delta;
  const DeltaSpec& d = c.delta;
  const int64_t keys = d.n_key_heads * d.d_key, values = d.n_heads * d.d_value;
  const auto [mixed, z_gate, beta_logit, decay_logit] = inputs(ctx, w, x);  // [T, 2J·A + M·B], [T, M·B], [T, M] twice #delta
  const Tensor qkv =
      causal_conv(ctx, "delta", mixed, w.kernel, w.no_bias, step, layer, c.activation, d.states());  // [T, 2J·A + M·B] #delta
  const Tensor q = ctx.hook("delta.hook_q", split_heads(ctx, take_columns(ctx, qkv, 0, keys), d.d_key));     // [T, J, A] #delta
  const Tensor k = ctx.hook("delta.hook_k", split_heads(ctx, take_columns(ctx, qkv, keys, keys), d.d_key));  // [T, J, A] #delta
  const Tensor v =
      ctx.hook("delta.hook_v", split_heads(ctx, take_columns(ctx, qkv, 2 * keys, values), d.d_value));  // [T, M, B] #delta
  const Tensor beta = ctx.hook("delta.hook_beta", activation(ctx, beta_logit, Activation::sigmoid));    // [T, M] #delta
  const Tensor decay =
      ctx.hook("delta.hook_log_decay", decay_log(ctx, decay_logit, w.A, w.dt_bias, d.A_is_log));  // [T, M] #delta
  const Tensor unit_q =
      l2_norm(ctx, q, kLengthEps, 1 / std::sqrt(static_cast<double>(d.d_key)));  // with the scale of scores #delta
  const Tensor unit_k = l2_norm(ctx, k, kLengthEps);                             // #delta
  const Tensor z = gated_delta(ctx, "delta", unit_q, unit_k, v, decay, beta, step, layer, d.tiled);   // [T, M, B] #delta
  const Tensor normed = w.norm(ctx, z);                                                               // [T, M, B] #delta
  const Tensor gate = ctx.hook("delta.hook_gate", split_heads(ctx, z_gate, d.d_value));               // [T, M, B] #delta
  const Tensor gated_z = ctx.hook("delta.hook_gated_z", gated(ctx, gate, normed, Activation::silu));  // [T, M, B] #delta
  return attention_output(ctx, "delta", gated_z, w.W_O);                                              // [T, D] #delta
}

Tensor Qwen35::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Qwen35Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);                     // [T, D] #norm
  const Tensor update = first_sublayer(ctx, step, layer, x);  // [T, D] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", update);  // of either kind: TransformerLens's name for the first sub-layer
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  Tensor second = c.has_experts(layer) ? w.experts(ctx, y) : w.mlp(ctx, y);      // [T, D] #mlp
  if (c.has_experts(layer)) second = add(ctx, second, w.shared(ctx, y));         // [T, D] #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", second);                       // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

Tensor Qwen35::first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  return c.attends[static_cast<size_t>(layer)] ? attend(ctx, step, layer, x) : recur(ctx, step, layer, x);
}

Qwen35::Qwen35(const Qwen35Config& config, bool stacked)
    : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors({.gguf_offset = 1});  // GGUF holds the factor 1 + w
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    Qwen35Block& w = blocks[static_cast<size_t>(layer)];
    list.begin_layer();
    list.add(w.ln1);
    c.attends[static_cast<size_t>(layer)] ? add_attention(list, w.attn) : add_recurrence(list, w.delta);
    list.add(w.ln2);
    if (!c.has_experts(layer)) {
      list.add(w.mlp);
      continue;
    }
    add_experts(list, w.experts, c.experts, stacked);
    add_shared_gate(list, w.shared, "mlp.shared_expert_gate");
    add_shared(list, w.shared, c.shared, "mlp.shared_expert");
  }
  end_tensors(list);
}

void Qwen35::add_attention(PartList& list, Qwen35Attention& w) const {
  const auto& [D, F, V, H, NH, GH] = list.size;
  const Dim QG{"2 * n_heads * head_dim", 2 * NH.size};
  list.add(w.W_QG, "attn.W_QG", "self_attn.q_proj.weight", "attn_q.weight", QG, D);
  list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D);
  list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
  if (c.qkv_bias) {
    list.add(w.W_QG.bias, "attn.b_QG", "self_attn.q_proj.bias", "attn_q.bias", QG);
    list.add(w.W_K.bias, "attn.b_K", "self_attn.k_proj.bias", "attn_k.bias", GH);
    list.add(w.W_V.bias, "attn.b_V", "self_attn.v_proj.bias", "attn_v.bias", GH);
  }
  list.add(w.q_norm, H);
  list.add(w.k_norm, H);
  list.add_out(w);
}

void Qwen35::add_recurrence(PartList& list, Qwen35Delta& w) const {
  const DeltaSpec& d = c.delta;
  const Dim D = list.size.D, M{"linear_num_value_heads", d.n_heads}, B{"linear_value_head_dim", d.d_value};
  const Dim MB{"linear_num_value_heads * linear_value_head_dim", d.n_heads * d.d_value};
  const Dim QKV{"2 * linear_num_key_heads * linear_key_head_dim + linear_num_value_heads * linear_value_head_dim", d.channels()};
  const Dim kernel{QKV.formula, d.channels() * d.taps}, K{"linear_conv_kernel_dim", d.taps};
  const int64_t keys = 2 * d.n_key_heads * d.d_key;
  // GGUF has the first heads of all key heads, then the second ones ….
  const auto tiles = [&](int64_t rows, int64_t first = 0, bool inputs = false) {
    return c.joined_ba ? HeadTiles{} : HeadTiles{d.n_key_heads, d.n_heads / d.n_key_heads, rows, first, inputs};
  };
  if (c.joined_qkvz) {
    const Dim QKVZ{"2 * (linear_num_key_heads * linear_key_head_dim + linear_num_value_heads * linear_value_head_dim)",
                   keys + 2 * d.n_heads * d.d_value};
    list.add(w.W_QKVZ, "delta.W_QKVZ", "linear_attn.in_proj_qkvz.weight", "ssm_in.weight", QKVZ, D);
  } else {
    list.add(w.W_QKV, "delta.W_QKV", "linear_attn.in_proj_qkv.weight", "attn_qkv.weight", QKV, D,
             {.tiles = tiles(d.d_value, keys)});
    list.add(w.W_Z, "delta.W_Z", "linear_attn.in_proj_z.weight", "attn_gate.weight", MB, D, {.tiles = tiles(d.d_value)});
  }
  if (c.joined_ba)
    list.add(w.W_BA, "delta.W_BA", "linear_attn.in_proj_ba.weight", "ssm_ba.weight",
             {"2 * linear_num_value_heads", 2 * d.n_heads}, D);
  else {
    list.add(w.W_beta, "delta.W_beta", "linear_attn.in_proj_b.weight", "ssm_beta.weight", M, D, {.tiles = tiles(1)});
    list.add(w.W_A, "delta.W_A", "linear_attn.in_proj_a.weight", "ssm_alpha.weight", M, D, {.tiles = tiles(1)});
  }
  list.add(w.kernel, "delta.conv.kernel", "linear_attn.conv1d.weight", "ssm_conv1d.weight", kernel,
           {.taps = K, .tiles = tiles(d.d_value * d.taps, keys * d.taps)});
  list.add(w.A, "delta.A", "linear_attn.A_log", "ssm_a", M, {.tiles = tiles(1), .gguf_minus_exp = true});
  list.add(w.dt_bias, "delta.dt_bias", "linear_attn.dt_bias", "ssm_dt.bias", M, {.tiles = tiles(1)});
  w.norm.spec = {.eps = c.norm.eps};  // in both files the factor is w itself
  list.add(w.norm.w, "delta.norm.w", "linear_attn.norm.weight", "ssm_norm.weight", B);
  list.add(w.W_O, "delta.W_O", "linear_attn.out_proj.weight", "ssm_out.weight", D, MB, {.tiles = tiles(d.d_value, 0, true)});
}

// Which layers attend: by layer_types, else every full_attention_interval-th.
std::vector<bool> read_layer_kinds(const ModelConfig& config, int64_t n_layers, int64_t every) {
  const ConfigReader& keys = config.keys;
  std::vector<bool> attends;
  for (int64_t layer = 0; layer < n_layers; ++layer) attends.push_back((layer + 1) % every == 0);
  const char* const listed = config.gguf ? "attention.recurrent_layers" : "layer_types";
  if (!keys.has(listed)) return attends;
  attends.clear();
  if (config.gguf) {
    for (const bool recurrent : keys.flags(listed)) attends.push_back(!recurrent);
    if (static_cast<int64_t>(attends.size()) > n_layers) attends.resize(static_cast<size_t>(n_layers));  // those that come after
  } else {
    for (const std::string& type : keys.strings(listed)) {
      if (type != "linear_attention" && type != "full_attention")
        keys.fail(listed, "holds \"" + type + "\"; expected linear_attention or full_attention");
      attends.push_back(type == "full_attention");
    }
  }
  if (static_cast<int64_t>(attends.size()) != n_layers)
    keys.fail(listed, "has " + std::to_string(attends.size()) + " entries; expected one for each of " + std::to_string(n_layers) +
                          " layers");
  return attends;
}

// A part of each head rotates. Positions of text are the same on all three axes of the multimodal form, which then rotates as the
// plain one does.
std::vector<int64_t> read_sections(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  std::vector<int64_t> sections{11, 11, 10};
  auto object = keys.find_object("rope_parameters");
  if (!object) object = keys.find_object("rope_scaling");
  if (keys.has("rope.dimension_sections")) sections = keys.counts("rope.dimension_sections");
  if (object && object->has("mrope_section")) sections = object->counts("mrope_section");
  if (object) object->ignore({"mrope_interleaved"});
  sections.resize(3);  // GGUF has a fourth, which is 0
  return sections;
}

DeltaSpec read_delta(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  const auto size = [&](const char* key, const char* gguf, int64_t fallback) {
    const int64_t found = keys.positive(key, {gguf}, config.gguf ? std::optional<int64_t>() : fallback);
    if (found > (1 << 16)) keys.fail(key, "is more than a recurrence here may have (65536). Is the file damaged?");
    return found;
  };
  DeltaSpec d;
  d.taps = size("linear_conv_kernel_dim", "ssm.conv_kernel", 4);
  d.n_key_heads = size("linear_num_key_heads", "ssm.group_count", 16);
  d.n_heads = size("linear_num_value_heads", "ssm.time_step_rank", 32);
  d.d_key = size("linear_key_head_dim", "ssm.state_size", 128);
  if (d.n_heads % d.n_key_heads != 0)
    keys.fail("linear_num_value_heads", "is " + std::to_string(d.n_heads) + "; expected a multiple of linear_num_key_heads (" +
                                            std::to_string(d.n_key_heads) + ")");
  d.tiled = config.gguf;
  d.A_is_log = !config.gguf;
  if (!config.gguf) {
    d.d_value = size("linear_value_head_dim", "linear_value_head_dim", 128);
    return d;
  }
  const int64_t all = keys.positive("ssm.inner_size");
  if (all % d.n_heads != 0)
    keys.fail("ssm.inner_size",
              "is " + std::to_string(all) + "; expected a multiple of ssm.time_step_rank (" + std::to_string(d.n_heads) + ")");
  d.d_value = all / d.n_heads;
  return d;
}

// Experts in every layer, or, in Qwen3 Next, in every decoder_sparse_step-th but those of mlp_only_layers.
void read_mixture(const ModelConfig& config, Qwen35Config& c, bool next) {
  const ConfigReader& keys = config.keys;
  c.experts = read_experts(keys, "moe_intermediate_size", "expert_feed_forward_length",
                           config.gguf ? std::nullopt : std::optional<int64_t>(512));
  c.experts.activation = c.activation;
  if (next) c.experts.renormalize = keys.flag("norm_topk_prob", {"expert_weights_norm"}, true);
  c.shared = keys.positive("shared_expert_intermediate_size", {"expert_shared_feed_forward_length"},
                           config.gguf ? std::nullopt : std::optional<int64_t>(512));
  c.router_loss = read_router_loss(keys, 0.001);
  c.joined_ba = next;
  c.joined_qkvz = next && (!config.gguf || keys.flag("joined_projections", {}, false));
  c.dense = next ? read_dense_layers(config, c.n_layers) : std::vector<bool>(static_cast<size_t>(c.n_layers), false);
}

enum class Kind : uint8_t { dense, mixture, next };

std::unique_ptr<Model> read(const ModelConfig& config, const char* family, Kind kind) {
  const ConfigReader& keys = config.keys;
  const bool dense = kind == Kind::dense;
  Qwen35Config c{read_decoder(config, family,
                              {.context_length = 32768,
                               .n_kv_heads = dense ? 4 : 2,
                               .head_dim = 256,
                               .d_ff = dense                ? std::optional<int64_t>()
                                       : kind == Kind::next ? 5632
                                                            : 512})};
  leave_out_further_layers(config, c);
  c.norm.offset = config.gguf ? 0.0 : 1.0;
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.qkv_bias = c.o_bias = keys.flag("attention_bias", {}, false);
  c.rope = read_rope(config, c, {.share = 0.25});
  if (kind != Kind::next) c.sections = read_sections(config);
  c.interval = keys.positive("full_attention_interval", {}, 4);
  c.attends = read_layer_kinds(config, c.n_layers, c.interval);
  c.delta = read_delta(config);
  if (kind == Kind::next) c.delta.tiled = false;
  if (!dense) read_mixture(config, c, kind == Kind::next);
  // Of the layers that predict further tokens, which transformers leaves out, too; and what it reads nowhere.
  keys.ignore(
      {"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype", "attn_output_gate", "mlp_only_layers"});
  return std::make_unique<Qwen35>(c, config.stacked_experts);
}

std::unique_ptr<Model> read_qwen3_5_text(const ModelConfig& config) { return read(config, "qwen3_5_text", Kind::dense); }
std::unique_ptr<Model> read_qwen3_5_moe_text(const ModelConfig& config) {
  return read(config, "qwen3_5_moe_text", Kind::mixture);
}
std::unique_ptr<Model> read_qwen3_next(const ModelConfig& config) { return read(config, "qwen3_next", Kind::next); }

Json Qwen35::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  const DeltaSpec& d = c.delta;
  if (format == ConfigFormat::gguf) {
    keys["ssm.conv_kernel"] = d.taps;
    keys["ssm.state_size"] = d.d_key;
    keys["ssm.group_count"] = d.n_key_heads;
    keys["ssm.time_step_rank"] = d.n_heads;
    keys["ssm.inner_size"] = d.n_heads * d.d_value;
    for (const bool attends : c.attends) keys["attention.recurrent_layers"].push_back(!attends);
    keys["full_attention_interval"] = c.interval;
    if (c.experts.count > 0) {
      write_gguf_experts(keys, c.experts);
      keys["expert_shared_feed_forward_length"] = c.shared;
      if (!c.experts.renormalize) keys["expert_weights_norm"] = false;
    }
    if (c.joined_ba) return keys;
    keys["rope.dimension_sections"] = c.sections;
    keys["rope.dimension_sections"].push_back(0);
    return keys;
  }
  for (const char* key : {"rope_theta", "rope_scaling"}) keys.erase(key);
  Json& rope = keys["rope_parameters"] = rope_parameters(c.rope);  // the proportional rule has a share of its own
  rope.emplace("partial_rotary_factor", static_cast<double>(c.rope.rotary_dim) / static_cast<double>(c.head_dim));
  if (!c.joined_ba) {
    rope["mrope_section"] = c.sections;
    rope["mrope_interleaved"] = true;
  }
  for (const bool attends : c.attends) keys["layer_types"].push_back(attends ? "full_attention" : "linear_attention");
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  keys["linear_conv_kernel_dim"] = d.taps;
  keys["linear_key_head_dim"] = d.d_key;
  keys["linear_value_head_dim"] = d.d_value;
  keys["linear_num_key_heads"] = d.n_key_heads;
  keys["linear_num_value_heads"] = d.n_heads;
  if (c.experts.count == 0) return keys;
  keys["num_experts"] = c.experts.count;
  keys["num_experts_per_tok"] = c.experts.per_row;
  keys["moe_intermediate_size"] = c.experts.d_ff;
  keys["shared_expert_intermediate_size"] = c.shared;
  keys["output_router_logits"] = c.router_loss > 0;
  if (c.router_loss > 0) keys["router_aux_loss_coef"] = c.router_loss;
  if (!c.joined_ba) return keys;
  keys["norm_topk_prob"] = c.experts.renormalize;
  write_dense_layers(keys, c.dense);
  return keys;
}

Family family_of_deltas(const char* name, const char* gguf, const char* architecture, const char* title,
                        std::unique_ptr<Model> (*make)(const ModelConfig&), bool has_forms = false) {
  return {.name = name,
          .gguf = gguf,
          .architecture = architecture,
          .title = title,
          .paper = "arXiv:2412.06464",
          .source = "src/engine/model/qwen3_5.cpp",
          .make = make,
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"},
          .ignored_prefixes = {"mtp.", "model.mtp."},
          .has_forms = has_forms};
}

}  // namespace

Family qwen3_5_text_family() {
  return family_of_deltas("qwen3_5_text", "qwen35", "Qwen3_5ForCausalLM", "Qwen 3.5", read_qwen3_5_text, true);
}

Family qwen3_5_moe_text_family() {
  Family moe = family_of_deltas("qwen3_5_moe_text", "qwen35moe", "Qwen3_5MoeForCausalLM", "Qwen 3.5 MoE", read_qwen3_5_moe_text);
  moe.scores_sequences = false;
  return moe;
}

Family qwen3_next_family() {
  return family_of_deltas("qwen3_next", "qwen3next", "Qwen3NextForCausalLM", "Qwen3 Next", read_qwen3_next);
}

}  // namespace vitrine
