// Nemotron-H, and Nemotron 3 with experts. Layers of one sub-layer each: Mamba 2's mixer, attention without positions, an MLP
// with squared ReLU, or a mixture of such MLPs beside a shared one; RMSNorm before each. NVIDIA, arXiv:2504.03624, section 2.1
// (the layers); 2512.20848 (the mixture). T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H
// head_dim, D d_model, F d_ff, V vocab_size; E experts of X hidden units, L the width of what they read.
#include <algorithm>
#include <cmath>

#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/mamba_mixer.h"
#include "model/registry.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace vitrine {
namespace {

constexpr const char* kNemotronMixture = "nemotron_h_moe";  // GGUF's name of those with experts, and ours

enum class NemotronKind : char { mamba = 'M', attention = '*', mlp = '-', experts = 'E' };

struct NemotronConfig : ModelShape {
  std::vector<NemotronKind> kinds = {};  // of each layer
  NormSpec norm;
  MambaSpec mixer;
  double attn_dropout = 0;
  Activation activation = Activation::relu_squared;
  bool mlp_bias = false;
  ExpertSpec experts = {};  // count 0: no layer has any
  int64_t shared = 0;       // hidden units of the shared expert
  int64_t latent = 0;       // above 0: L, and experts read a product of the stream with a matrix
  bool has(NemotronKind kind) const { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); }
};

struct NemotronBlock {
  RmsNorm ln1{{"ln1", "norm", "attn_norm"}};  // [D]
  Mamba mixer;                                // of a layer of each kind
  Attention attn;                             // W_Q, W_K, W_V, W_O
  Mlp mlp;                                    // W_in, W_out
  ExpertMlp experts;
  Mlp shared;                    // beside experts
  Weight latent_in, latent_out;  // [L, D], [D, L], around experts
};

class NemotronH final : public Decoder {
 public:
  NemotronH(const NemotronConfig& c, bool stacked);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  Tensor attend(Context& ctx, const Step& step, int layer, const Tensor& x) const;
  Tensor mixture(Context& ctx, int layer, const Tensor& x) const;
  void add_attention(PartList& list, Attention& w) const;
  void add_mixture(PartList& list, NemotronBlock& w, bool stacked) const;

  const NemotronConfig c;
  std::vector<NemotronBlock> blocks;
  RmsNorm ln_final{{"ln_final", "backbone.norm_f", "output_norm"}};  // [D]
};

Tensor NemotronH::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const NemotronBlock& w = blocks[static_cast<size_t>(layer)];
  const NemotronKind kind = c.kinds[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  Tensor out;
  switch (kind) {
    case NemotronKind::mamba: out = ctx.hook("hook_attn_out", w.mixer(ctx, x, step, layer)); break;     // [T, D] #ssm
    case NemotronKind::attention: out = ctx.hook("hook_attn_out", attend(ctx, step, layer, x)); break;  // [T, D] #attention
    case NemotronKind::mlp: out = ctx.hook("hook_mlp_out", w.mlp(ctx, x)); break;                       // [T, D] #mlp
    case NemotronKind::experts: out = ctx.hook("hook_mlp_out", mixture(ctx, layer, x)); break;          // [T, D] #mlp
  }
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_pre, out)));  // [T, D] #residual
}

Tensor NemotronH::attend(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  const Attention& w = blocks[static_cast<size_t>(layer)].attn;
  const auto [q, k, v] = w.qkv(ctx, x);  // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  const AttentionSpec spec{.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
                           .dropout = c.attn_dropout,
                           .dropout_site = static_cast<uint32_t>(layer)};
  return w.out(ctx, attention(ctx, "attn", q, k, v, step, layer, spec));  // [T, D] #attention
}

// Σ weight · relu²(y W_inᵀ) W_outᵀ of the best few experts, and the shared one; the router reads x itself. #mlp
Tensor NemotronH::mixture(Context& ctx, int layer, const Tensor& x) const {
  const NemotronBlock& w = blocks[static_cast<size_t>(layer)];
  const ExpertMlp& e = w.experts;
  Tensor mixed;
  if (c.latent > 0) {
    const Tensor y = linear(ctx, x, w.latent_in);                                                  // [T, L] #mlp
    mixed = linear(ctx, expert_mlp(ctx, "mlp", y, e.router, e.experts, e.spec, x), w.latent_out);  // [T, D] #mlp
  } else {
    mixed = e(ctx, x);  // [T, D] #mlp
  }
  const Tensor shared = mlp(ctx, "shared", x, w.shared.W_in, w.shared.W_out, w.shared.f);  // [T, D] #mlp
  return add(ctx, mixed, ctx.hook("shared.hook_out", shared));                             // [T, D] #mlp
}

NemotronH::NemotronH(const NemotronConfig& config, bool stacked)
    : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation});
  list.add(W_E, "W_E", "backbone.embeddings.weight", "token_embd.weight", list.size.V, list.size.D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    NemotronBlock& w = blocks[static_cast<size_t>(layer)];
    list.begin_layer("backbone.layers.");
    list.add(w.ln1);
    switch (c.kinds[static_cast<size_t>(layer)]) {
      case NemotronKind::mamba:
        w.mixer.spec = c.mixer;
        add_mamba(list, w.mixer, "mixer");
        break;
      case NemotronKind::attention: add_attention(list, w.attn); break;
      case NemotronKind::mlp:
        w.mlp.f = c.activation;
        list.add(w.mlp.W_in, "mlp.W_in", "mixer.up_proj.weight", "ffn_up.weight", list.size.F, list.size.D);
        list.add(w.mlp.W_out, "mlp.W_out", "mixer.down_proj.weight", "ffn_down.weight", list.size.D, list.size.F);
        if (!c.mlp_bias) break;
        list.add(w.mlp.W_in.bias, "mlp.b_in", "mixer.up_proj.bias", "ffn_up.bias", list.size.F);
        list.add(w.mlp.W_out.bias, "mlp.b_out", "mixer.down_proj.bias", "ffn_down.bias", list.size.D);
        break;
      case NemotronKind::experts: add_mixture(list, w, stacked); break;
    }
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", list.size.V, list.size.D);
  set_tensors(list.take());
}

void NemotronH::add_attention(PartList& list, Attention& w) const {
  const Dim D = list.size.D, NH = list.size.NH, GH = list.size.GH;
  // llama.cpp's converter orders them as if neighboring components rotated together.
  const StoredLayout qk{.gguf_pairs = c.head_dim % 2 == 0};
  w.head_dim = c.head_dim;
  list.add(w.W_Q, "attn.W_Q", "mixer.q_proj.weight", "attn_q.weight", NH, D, qk);
  list.add(w.W_K, "attn.W_K", "mixer.k_proj.weight", "attn_k.weight", GH, D, qk);
  list.add(w.W_V, "attn.W_V", "mixer.v_proj.weight", "attn_v.weight", GH, D);
  list.add(w.W_O, "attn.W_O", "mixer.o_proj.weight", "attn_output.weight", D, NH);
}

void NemotronH::add_mixture(PartList& list, NemotronBlock& w, bool stacked) const {
  const Dim D = list.size.D, S{"d_ff of the shared expert", c.shared}, L{"moe_latent_size", c.latent};
  const ExpertNames names{.router = "mixer.gate", .experts = "mixer.experts", .gate = nullptr};
  add_experts(list, w.experts, c.experts, stacked, names, c.latent);
  add_correction(list, w.experts, "mixer.gate.e_score_correction_bias");
  if (c.latent > 0) {
    list.add(w.latent_in, "latent.W_in", "mixer.fc1_latent_proj.weight", "ffn_latent_down.weight", L, D);
    list.add(w.latent_out, "latent.W_out", "mixer.fc2_latent_proj.weight", "ffn_latent_up.weight", D, L);
    if (c.mlp_bias) {
      list.add(w.latent_in.bias, "latent.b_in", "mixer.fc1_latent_proj.bias", "", L);
      list.add(w.latent_out.bias, "latent.b_out", "mixer.fc2_latent_proj.bias", "", D);
    }
  }
  const std::string shared = "mixer.shared_experts.";
  w.shared.f = c.activation;
  list.add(w.shared.W_in, "shared.W_in", shared + "up_proj.weight", "ffn_up_shexp.weight", S, D);
  list.add(w.shared.W_out, "shared.W_out", shared + "down_proj.weight", "ffn_down_shexp.weight", D, S);
  if (!c.mlp_bias) return;
  list.add(w.shared.W_in.bias, "shared.b_in", shared + "up_proj.bias", "", S);
  list.add(w.shared.W_out.bias, "shared.b_out", shared + "down_proj.bias", "", D);
}

// By a list of names or a pattern of one letter a layer.
std::vector<NemotronKind> read_nemotron_kinds(const ConfigReader& keys) {
  const char* const listed = "layers_block_type";
  std::vector<NemotronKind> kinds;
  std::vector<std::string> types = keys.strings(listed, {"layer_types"});
  if (types.empty() && keys.has("hybrid_override_pattern")) {
    const std::string pattern = keys.string("hybrid_override_pattern");
    for (const char kind : pattern) {
      if (std::string_view("M*-E").find(kind) == std::string_view::npos)
        keys.fail("hybrid_override_pattern", std::string("holds \"") + kind + "\"; expected M, *, - or E for each layer");
      kinds.push_back(static_cast<NemotronKind>(kind));
    }
  } else {
    if (types.empty()) types = {"linear_attention", "moe", "full_attention", "mlp"};
    for (const std::string& type : types) {
      if (type == "linear_attention" || type == "mamba")
        kinds.push_back(NemotronKind::mamba);
      else if (type == "full_attention" || type == "attention")
        kinds.push_back(NemotronKind::attention);
      else if (type == "mlp" || type == "moe")
        kinds.push_back(type == "mlp" ? NemotronKind::mlp : NemotronKind::experts);
      else
        keys.fail(listed, "holds \"" + type + "\"; expected linear_attention, full_attention, mlp or moe");
    }
  }
  keys.ignore({"hybrid_override_pattern", "num_hidden_layers"});  // their number is the list's, as in transformers
  if (kinds.empty()) keys.fail("hybrid_override_pattern", "names no layer; expected M, *, - or E for each");
  if (kinds.size() > 16384)
    throw FileError(keys.path(),
                    "asks for " + std::to_string(kinds.size()) + " layers; expected at most 16384. Is the file damaged?");
  return kinds;
}

// GGUF: by each layer's key and value heads and its hidden units; without either it is Mamba 2's.
std::vector<NemotronKind> read_gguf_nemotron_kinds(const ConfigReader& keys, NemotronConfig& c, bool experts) {
  const auto list = [&](const char* key) {
    std::vector<int64_t> each = keys.counts(key);
    if (each.size() == 1) each.assign(static_cast<size_t>(c.n_layers), each[0]);
    if (std::ssize(each) < c.n_layers)
      keys.fail(key, "has " + std::to_string(each.size()) + " entries; expected one for each of " + std::to_string(c.n_layers) +
                         " layers");
    return each;
  };
  const std::vector<int64_t> heads = list("attention.head_count_kv"), units = list("feed_forward_length");
  std::vector<NemotronKind> kinds;
  const auto agree = [&](const char* key, int64_t& of_all, int64_t n) {
    if (of_all != 0 && of_all != n) keys.fail(key, "differs between layers that have any, which is not supported");
    of_all = n;
  };
  for (size_t layer = 0; layer < static_cast<size_t>(c.n_layers); ++layer) {
    if (units[layer] > 0) agree("feed_forward_length", c.d_ff, units[layer]);
    if (units[layer] == 0 && heads[layer] > 0) agree("attention.head_count_kv", c.n_kv_heads, heads[layer]);
    kinds.push_back(units[layer] > 0   ? (experts ? NemotronKind::experts : NemotronKind::mlp)
                    : heads[layer] > 0 ? NemotronKind::attention
                                       : NemotronKind::mamba);
  }
  return kinds;
}

void read_nemotron_mixture(const ModelConfig& config, NemotronConfig& c) {
  const ConfigReader& keys = config.keys;
  c.family = kNemotronMixture;
  c.experts = read_experts(keys, "moe_intermediate_size", "expert_feed_forward_length",
                           config.gguf ? std::nullopt : std::optional<int64_t>(7688), c.n_layers);
  c.experts.gated = false;
  c.experts.activation = c.activation;
  read_grouped_router(config, c.experts);
  c.shared = keys.positive("moe_shared_expert_intermediate_size", {"expert_shared_feed_forward_length"},
                           config.gguf ? std::nullopt : std::optional<int64_t>(7688));
  c.latent = keys.find_positive("moe_latent_size").value_or(0);
  if (keys.count("n_shared_experts", {"expert_shared_count"}, 1) != 1)
    keys.fail(config.gguf ? "expert_shared_count" : "n_shared_experts", "is not supported, as in transformers; expected 1");
  check_product(keys, "moe_intermediate_size", "moe_intermediate_size * d_model", c.experts.d_ff, c.d_model, kMostInStream);
}

std::unique_ptr<Model> read_nemotron_h(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  const auto absent = [&](int64_t n) { return config.gguf ? std::optional<int64_t>() : std::optional<int64_t>(n); };
  NemotronConfig c;
  c.family = "nemotron_h";
  c.d_model = keys.positive("hidden_size", {"embedding_length"}, absent(4096));
  c.vocab_size = keys.positive("vocab_size", {}, absent(131072));
  c.n_heads = keys.positive("num_attention_heads", {"attention.head_count"}, absent(32));
  c.head_dim = keys.positive("head_dim", {"attention_head_dim", "attention.key_length"}, absent(128));
  c.context_length = keys.positive("max_position_embeddings", {"context_length"}, absent(4096));
  if (config.gguf) {
    c.n_layers = read_layers(keys, "block_count");
    leave_out_further_layers(config, c);
    c.kinds = read_gguf_nemotron_kinds(keys, c, keys.count("expert_count", {}, 0) > 0);
  } else {
    c.kinds = read_nemotron_kinds(keys);
    c.n_layers = std::ssize(c.kinds);
    leave_out_further_layers(config, c);
    c.n_kv_heads = keys.positive("num_key_value_heads", {}, keys.mentions("num_key_value_heads") ? c.n_heads : 8);
    c.d_ff = keys.positive("intermediate_size", {}, 21504);
  }
  if (!c.has(NemotronKind::attention)) c.n_kv_heads = c.n_heads;
  check_heads(keys, c.n_heads, c.n_kv_heads);
  check_product(keys, "num_attention_heads", "n_heads * head_dim", c.n_heads, c.head_dim, kMostInHeads);
  check_product(keys, "hidden_size", "d_model * n_layers", c.d_model, c.n_layers, kMostInStream);
  if (!config.gguf) refuse_flags(keys, {"tie_word_embeddings"});  // the reference has a head of its own even so
  c.tied = config.gguf && keys.flag("tie_word_embeddings");
  c.attn_dropout = read_dropout(keys, "attention_dropout", 0.0);
  c.activation = read_activation(keys, "mlp_hidden_act", {}, "relu2");
  c.mlp_bias = keys.flag("mlp_bias", {}, false);
  const bool rms = keys.has("attention.layer_norm_rms_epsilon");  // of a GGUF file; its converter has the other one
  c.norm = {.eps = read_eps(config, "layer_norm_epsilon",
                            rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", 1e-5)};
  const auto named = [&](const char* older, const char* name) { return keys.has(older) ? older : name; };
  if (c.has(NemotronKind::mamba)) {
    c.mixer = read_mamba(config, {{"mamba_num_heads", 128},
                                  {named("mamba_n_groups", "n_groups"), 8},
                                  {"ssm_state_size", 128},
                                  {"mamba_head_dim", 64},
                                  {named("mamba_d_conv", "conv_kernel"), 4}});
    c.mixer.norm = c.norm;
    c.mixer.conv_bias = keys.flag(named("mamba_conv_bias", "use_conv_bias"), {}, true);
    c.mixer.bias = c.mixer.out_bias = keys.flag("use_bias", {}, false);
    c.mixer.activation = read_activation(keys, "mamba_hidden_act", {}, "silu");
  }
  if (c.has(NemotronKind::experts)) read_nemotron_mixture(config, c);
  if (!c.has(NemotronKind::mlp)) c.d_ff = c.experts.d_ff;  // whatever intermediate_size says
  if (config.gguf) {
    keys.ignore({"rope.dimension_count", "rope.freq_base", "attention.layer_norm_epsilon", "ssm.conv_kernel", "ssm.state_size",
                 "ssm.group_count", "ssm.inner_size", "ssm.time_step_rank"});
    return std::make_unique<NemotronH>(c, false);
  }
  // Steps of time have a lower limit and no upper one, whatever time_step_limit says.
  const char* const least = named("mamba_dt_min", "time_step_min");
  c.mixer.limits = {.least = keys.number(least, {}, 0.001)};
  if (!(c.mixer.limits.least >= 0 && c.mixer.limits.least <= std::numeric_limits<float>::max()))
    keys.fail(least, "is below 0 or more than f32 holds; expected the least step of time");
  refuse_flags(keys, {"attention_bias"});
  // How the reference computes or draws fresh weights, or which it does not read; of layers that predict later tokens.
  keys.ignore({"chunk_size",
               "mamba_chunk_size",
               "expand",
               "mamba_expand",
               "hidden_dropout",
               "mamba_proj_bias",
               "mamba_ssm_cache_dtype",
               "moe_shared_expert_overlap",
               "num_logits_to_keep",
               "output_router_logits",
               "rescale_prenorm_residual",
               "residual_in_fp32",
               "sliding_window",
               "time_step_floor",
               "mamba_dt_init_floor",
               "time_step_max",
               "mamba_dt_max",
               "time_step_min",
               "time_step_limit",
               "mamba_dt_limit",
               "time_step_rank",
               "use_mamba_kernels",
               "mtp_layers_block_type",
               "mtp_hybrid_override_pattern",
               "partial_rotary_factor",
               "rope_theta",
               "rms_norm_eps",
               "norm_eps",
               "n_groups",
               "conv_kernel",
               "use_conv_bias",
               "mamba_num_heads",
               "mamba_head_dim",
               "ssm_state_size",
               "use_bias",
               "mamba_hidden_act"});
  keys.ignore({"n_routed_experts", "n_shared_experts", "moe_intermediate_size", "moe_shared_expert_intermediate_size",
               "moe_latent_size", "num_experts_per_tok", "routed_scaling_factor", "n_group", "topk_group", "norm_topk_prob"});
  return std::make_unique<NemotronH>(c, config.stacked_experts);
}

Json NemotronH::config(ConfigFormat format) const {
  const MambaKeys names{
      {"mamba_num_heads", 0}, {"n_groups", 0}, {"ssm_state_size", 0}, {"mamba_head_dim", 0}, {"conv_kernel", 0}};
  Json keys;
  if (format == ConfigFormat::gguf) {
    keys = write_gguf_sizes(c, "attention.layer_norm_rms_epsilon", c.norm.eps);
    keys["attention.layer_norm_epsilon"] = c.norm.eps;
    keys["attention.key_length"] = keys["attention.value_length"] = c.head_dim;
    keys["rope.scaling.finetuned"] = false;  // llama.cpp's word for no positions
    Json &heads = keys["attention.head_count_kv"] = Json::array(), &units = keys["feed_forward_length"] = Json::array();
    for (const NemotronKind kind : c.kinds) {
      heads.push_back(kind == NemotronKind::attention ? c.n_kv_heads : 0);
      units.push_back(kind == NemotronKind::mlp ? c.d_ff : kind == NemotronKind::experts ? c.experts.d_ff : 0);
    }
    if (c.has(NemotronKind::mamba)) write_mamba(keys, c.mixer, names, format);
    if (!c.mixer.conv_bias) keys["use_conv_bias"] = false;  // a word of our own
    if (c.experts.count == 0) return keys;
    write_grouped_router(keys, c.experts, format);
    keys["expert_shared_feed_forward_length"] = c.shared;
    keys["expert_shared_count"] = 1;
    if (c.latent > 0) keys["moe_latent_size"] = c.latent;
    return keys;
  }
  keys = {{"model_type", "nemotron_h"},
          {"hidden_size", c.d_model},
          {"num_attention_heads", c.n_heads},
          {"num_key_value_heads", c.n_kv_heads},
          {"head_dim", c.head_dim},
          {"intermediate_size", std::max<int64_t>(c.d_ff, 1)},
          {"vocab_size", c.vocab_size},
          {"max_position_embeddings", c.context_length},
          {"layer_norm_epsilon", shortest(c.norm.eps)},
          {"attention_dropout", c.attn_dropout},
          {"mlp_hidden_act", activation_key(c.activation)},
          {"mamba_hidden_act", activation_key(c.mixer.activation)},
          {"mlp_bias", c.mlp_bias},
          {"use_bias", c.mixer.bias},
          {"use_conv_bias", c.mixer.conv_bias},
          {"tie_word_embeddings", c.tied}};
  for (const NemotronKind kind : c.kinds)
    keys["layers_block_type"].push_back(kind == NemotronKind::mamba       ? "linear_attention"
                                        : kind == NemotronKind::attention ? "full_attention"
                                        : kind == NemotronKind::mlp       ? "mlp"
                                                                          : "moe");
  if (c.has(NemotronKind::mamba)) {
    write_mamba(keys, c.mixer, names, format);
    keys.erase("time_step_limit");
    keys["time_step_min"] = shortest(c.mixer.limits.least);
  }
  if (c.experts.count == 0) return keys;
  write_grouped_router(keys, c.experts, format);
  keys["n_shared_experts"] = 1;
  keys["moe_shared_expert_intermediate_size"] = c.shared;
  keys["moe_latent_size"] = c.latent > 0 ? Json(c.latent) : Json(nullptr);
  return keys;
}

Family family_of_nemotrons(const char* name, const char* title, const char* paper) {
  return {.name = name,
          .gguf = name,
          .architecture = "NemotronHForCausalLM",
          .title = title,
          .paper = paper,
          .source = "src/engine/model/nemotron_h.cpp",
          .second_source = "src/engine/model/mamba_mixer.cpp",
          .make = read_nemotron_h,
          .optional_prefixes = {"backbone."},
          .ignored_prefixes = {"mtp."},
          .has_forms = false,
          .scores_sequences = false};
}

}  // namespace

Family nemotron_h_family() { return family_of_nemotrons("nemotron_h", "Nemotron-H", "arXiv:2504.03624"); }

// With experts, whose config.json says nemotron_h, too.
Family nemotron_h_moe_family() { return family_of_nemotrons(kNemotronMixture, "Nemotron 3 (mixture)", "arXiv:2512.20848"); }

}  // namespace vitrine
