// LFM2. Most layers have a short causal convolution between two gates, some grouped-query attention with RoPE and an RMSNorm on
// each head's query and key; SwiGLU, RMSNorm before each sub-layer. Liquid AI, arXiv:2511.23404.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size,
// K taps of the convolution.
#include <cmath>

#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"
#include "ops/short_conv.h"

namespace vitrine {
namespace {

struct Lfm2Config : DecoderConfig {
  std::vector<bool> attends = {};  // each layer: it has attention; else a convolution
  int64_t taps = 0;
  bool conv_bias = false;
  ExpertSpec experts = {};   // count 0: every layer has an MLP
  int64_t dense_layers = 0;  // which the first layers have even so
  bool corrected = false;    // the router's scores

  bool has_experts(int64_t layer) const { return experts.count > 0 && layer >= dense_layers; }
};

struct Lfm2Block {
  RmsNorm ln1{{"ln1", "operator_norm", "attn_norm"}};  // [D]
  NormedAttention attn;                                // of a layer with attention: W_Q, W_K, W_V, W_O; q_norm, k_norm
  ShortConv conv;                                      // of one with a convolution: D channels, K taps
  RmsNorm ln2{{"ln2", "ffn_norm", "ffn_norm"}};        // [D]
  GatedMlp mlp;                                        // W_gate, W_in, W_out
  ExpertMlp experts;                                   // or E experts
};

class Lfm2 final : public RopeDecoder {
 public:
  Lfm2(const Lfm2Config& c, bool stacked);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Tensor first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor attend(Context& ctx, const Step& step, int layer, const Tensor& x) const;
  void add_attention(PartList& list, NormedAttention& w) const;
  void add_convolution(PartList& list, ShortConv& w) const;

  const Lfm2Config c;
  std::vector<Lfm2Block> blocks;
};

Tensor Lfm2::attend(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  const Lfm2Block& w = blocks[static_cast<size_t>(layer)];
  auto [q, k, v] = w.attn.qkv(ctx, x);  // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = w.attn.q_norm(ctx, q);            // [T, N, H] #attention
  k = w.attn.k_norm(ctx, k);            // [T, G, H] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  return w.attn.out(ctx, z);                                                             // [T, D] #attention
}

Tensor Lfm2::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Lfm2Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);                                              // [T, D] #norm
  const Tensor update = first_sublayer(ctx, step, layer, x);                           // [T, D] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", update);                           // of both kinds [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor second = c.has_experts(layer) ? w.experts(ctx, y) : w.mlp(ctx, y);  // [T, D] #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", second);                         // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));    // [T, D] #residual
}

// Either kind. The convolution is (C ⊙ conv(B ⊙ u)) W_outᵀ of B, C and u that it makes of x.
Tensor Lfm2::first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  if (c.attends[static_cast<size_t>(layer)]) return attend(ctx, step, layer, x);            // [T, D] #attention
  return short_conv(ctx, "conv", x, blocks[static_cast<size_t>(layer)].conv, step, layer);  // #attention #window
}

Lfm2::Lfm2(const Lfm2Config& config, bool stacked) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const ExpertNames names{
      .router = "feed_forward.gate", .experts = "feed_forward.experts", .gate = "w1", .in = "w3", .out = "w2"};
  ln_final.name = {"ln_final", "model.embedding_norm", "token_embd_norm"};  // llama.cpp's misnomer
  PartList list = begin_tensors();
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    Lfm2Block& w = blocks[static_cast<size_t>(layer)];
    list.add_layer(w.ln1);
    c.attends[static_cast<size_t>(layer)] ? add_attention(list, w.attn) : add_convolution(list, w.conv);
    list.add(w.ln2);
    if (c.has_experts(layer)) {
      add_experts(list, w.experts, c.experts, stacked, names);
      if (c.corrected) add_correction(list, w.experts, "feed_forward.expert_bias");
      continue;
    }
    list.add(w.mlp, {.gate = "feed_forward.w1", .in = "feed_forward.w3", .out = "feed_forward.w2"});
  }
  end_tensors(list);
}

void Lfm2::add_attention(PartList& list, NormedAttention& w) const {
  w.q_norm.name.huggingface = "self_attn.q_layernorm";
  w.k_norm.name.huggingface = "self_attn.k_layernorm";
  list.add_qkv(w);
  list.add(w.q_norm, list.size.H);
  list.add(w.k_norm, list.size.H);
  list.add_out(w, "self_attn.out_proj");
}

void Lfm2::add_convolution(PartList& list, ShortConv& w) const {
  const Dim D = list.size.D, DK{"d_model", c.d_model * c.taps}, K{"conv_L_cache", c.taps};
  const auto part = [](int i) { return StoredLayout{.part = i, .parts = 3}; };
  list.add(w.W_B, "conv.W_B", "conv.in_proj.weight", "shortconv.in_proj.weight", D, D, part(0));
  list.add(w.W_C, "conv.W_C", "conv.in_proj.weight", "shortconv.in_proj.weight", D, D, part(1));
  list.add(w.W_x, "conv.W_x", "conv.in_proj.weight", "shortconv.in_proj.weight", D, D, part(2));
  if (c.conv_bias) {
    list.add(w.W_B.bias, "conv.b_B", "conv.in_proj.bias", "shortconv.in_proj.bias", D, part(0));
    list.add(w.W_C.bias, "conv.b_C", "conv.in_proj.bias", "shortconv.in_proj.bias", D, part(1));
    list.add(w.W_x.bias, "conv.b_x", "conv.in_proj.bias", "shortconv.in_proj.bias", D, part(2));
  }
  list.add(w.kernel, "conv.kernel", "conv.conv.weight", "shortconv.conv.weight", DK, {.taps = K});
  if (c.conv_bias) list.add(w.bias, "conv.bias", "conv.conv.bias", "shortconv.conv.bias", D);
  list.add(w.W_out, "conv.W_out", "conv.out_proj.weight", "shortconv.out_proj.weight", D, D);
  if (c.conv_bias) list.add(w.W_out.bias, "conv.b_out", "conv.out_proj.bias", "shortconv.out_proj.bias", D);
}

// Which layers attend: by layer_types, else by full_attn_idxs, else all.
std::vector<bool> read_layer_kinds(const ConfigReader& keys, int64_t n_layers) {
  std::vector<bool> attends(static_cast<size_t>(n_layers), !keys.has("full_attn_idxs"));
  for (const int64_t layer : keys.counts("full_attn_idxs"))
    if (layer < n_layers) attends[static_cast<size_t>(layer)] = true;
  if (!keys.has("layer_types")) return attends;
  const std::vector<std::string> types = keys.strings("layer_types");
  if (static_cast<int64_t>(types.size()) != n_layers)
    keys.fail("layer_types", "has " + std::to_string(types.size()) + " entries; expected one for each of " +
                                 std::to_string(n_layers) + " layers");
  for (size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] != "conv" && types[layer] != "full_attention")
      keys.fail("layer_types", "holds \"" + types[layer] + "\"; expected conv or full_attention");
    attends[layer] = types[layer] == "full_attention";
  }
  return attends;
}

// GGUF: layers without key/value heads have a convolution.
std::vector<bool> read_gguf_layer_kinds(const ConfigReader& keys, int64_t n_layers) {
  const std::vector<int64_t> heads = keys.counts("attention.head_count_kv");
  if (heads.size() == 1 && n_layers != 1) return std::vector<bool>(static_cast<size_t>(n_layers), true);
  if (static_cast<int64_t>(heads.size()) != n_layers)
    keys.fail("attention.head_count_kv", "has " + std::to_string(heads.size()) + " entries; expected one for each of " +
                                             std::to_string(n_layers) + " layers");
  std::vector<bool> attends;
  for (const int64_t n : heads) attends.push_back(n > 0);
  return attends;
}

// What the file says is a width before it is made smaller: two thirds of it, times a factor, rounded up.
int64_t adjusted_width(const ConfigReader& keys, int64_t width) {
  if (!keys.flag("block_auto_adjust_ff_dim", {}, true)) {
    keys.ignore({"block_ffn_dim_multiplier", "block_multiple_of"});
    return width;
  }
  const int64_t multiple = keys.positive("block_multiple_of", {}, 256);
  const bool no_factor = keys.mentions("block_ffn_dim_multiplier") && !keys.has("block_ffn_dim_multiplier");
  const double factor = keys.number("block_ffn_dim_multiplier", {}, 1.0);
  const double two_thirds = std::floor(static_cast<double>(2 * width) / 3);
  if (no_factor) return static_cast<int64_t>(two_thirds);
  const double scaled = std::floor(factor * two_thirds);
  if (!(scaled >= 1 && scaled <= static_cast<double>(ConfigReader::kLargest)))
    keys.fail("block_ffn_dim_multiplier", "gives the MLP a width of " + Json(scaled).dump() + "; expected one above 0");
  return (static_cast<int64_t>(scaled) + multiple - 1) / multiple * multiple;
}

// What both families read. d_ff: of a config.json that is silent.
Lfm2Config read_common(const ModelConfig& config, const char* family, int64_t d_ff) {
  const ConfigReader& keys = config.keys;
  Lfm2Config c{read_decoder(config, family,
                            {.context_length = 128000, .n_kv_heads = 8, .tied = true, .d_ff = d_ff, .only_some_attend = true})};
  c.norm.eps = read_eps(config, "norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.rope = read_rope(config, c, {.theta = 1e6});
  c.activation = Activation::silu;
  c.taps = keys.positive("conv_L_cache", {"shortconv.l_cache"}, config.gguf ? std::optional<int64_t>() : 3);
  if (c.taps > 4096) keys.fail("conv_L_cache", "is more positions than a convolution here may span (4096). Is the file damaged?");
  c.attends = config.gguf ? read_gguf_layer_kinds(keys, c.n_layers) : read_layer_kinds(keys, c.n_layers);
  if (config.gguf) return c;
  c.conv_bias = keys.flag("conv_bias", {}, false);
  c.tied = keys.flag("tie_embedding", {}, c.tied);
  // Said in published files; transformers reads none of them.
  keys.ignore(
      {"block_dim", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "rms_norm_eps", "theta", "use_pos_enc"});
  return c;
}

std::unique_ptr<Model> read_lfm2_moe(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Lfm2Config c = read_common(config, "lfm2_moe", 7168);
  c.experts = read_experts(keys, "moe_intermediate_size", "expert_feed_forward_length",
                           config.gguf ? std::nullopt : std::optional<int64_t>(1792));
  c.experts.sigmoid = true;
  c.experts.sum_eps = 1e-6;
  c.experts.renormalize = keys.flag("norm_topk_prob", {"expert_weights_norm"}, true);
  c.experts.scale = keys.number("routed_scaling_factor", {"expert_weights_scale"}, 1.0);
  c.corrected = keys.flag("use_expert_bias", {}, true);
  c.dense_layers = std::min(keys.count("num_dense_layers", {"leading_dense_block_count"}, 2), c.n_layers);
  keys.ignore({"output_router_logits", "router_aux_loss_coef", "rope_parameters_note"});
  return std::make_unique<Lfm2>(c, config.stacked_experts);
}

std::unique_ptr<Model> read_lfm2(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Lfm2Config c = read_common(config, "lfm2", 12288);
  if (!config.gguf) {
    c.d_ff = adjusted_width(keys, keys.find_positive("block_ff_dim").value_or(c.d_ff));
    keys.ignore({"block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu", "block_use_xavier_init"});
  }
  return std::make_unique<Lfm2>(c, false);
}

Json Lfm2::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    Json& heads = keys["attention.head_count_kv"] = Json::array();
    for (const bool attends : c.attends) heads.push_back(attends ? c.n_kv_heads : 0);
    keys["shortconv.l_cache"] = c.taps;
    if (c.experts.count == 0) return keys;
    write_gguf_experts(keys, c.experts);
    keys["leading_dense_block_count"] = c.dense_layers;
    keys[kGatingInGguf] = gguf_gating(c.experts);
    if (!c.experts.renormalize) keys["expert_weights_norm"] = false;
    if (c.experts.scale != 1) keys["expert_weights_scale"] = c.experts.scale;
    return keys;
  }
  keys.erase("rms_norm_eps");
  keys["norm_eps"] = shortest(c.norm.eps);
  for (const bool attends : c.attends) keys["layer_types"].push_back(attends ? "full_attention" : "conv");
  keys["conv_L_cache"] = c.taps;
  keys["conv_bias"] = c.conv_bias;
  if (c.experts.count > 0) {
    keys["num_experts"] = c.experts.count;
    keys["num_experts_per_tok"] = c.experts.per_row;
    keys["moe_intermediate_size"] = c.experts.d_ff;
    keys["num_dense_layers"] = c.dense_layers;
    keys["use_expert_bias"] = c.corrected;
    keys["norm_topk_prob"] = c.experts.renormalize;
    keys["routed_scaling_factor"] = shortest(c.experts.scale);
    return keys;
  }
  keys["block_auto_adjust_ff_dim"] = false;  // d_ff is the width itself
  keys["block_ffn_dim_multiplier"] = 1.0;
  keys["block_multiple_of"] = 256;
  return keys;
}

}  // namespace

Family lfm2_family() {
  return {.name = "lfm2",
          .gguf = "lfm2",
          .architecture = "Lfm2ForCausalLM",
          .title = "LFM2",
          .paper = "arXiv:2511.23404",
          .source = "src/engine/model/lfm2.cpp",
          .make = read_lfm2,
          .scores_sequences = false};
}

Family lfm2_moe_family() {
  return {.name = "lfm2_moe",
          .gguf = "lfm2moe",
          .architecture = "Lfm2MoeForCausalLM",
          .title = "LFM2 MoE",
          .paper = "arXiv:2511.23404",
          .source = "src/engine/model/lfm2.cpp",
          .make = read_lfm2_moe,
          .scores_sequences = false};
}

}  // namespace vitrine
