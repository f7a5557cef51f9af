// DeepSeek V2 and V3. Attention whose keys and values are made of a latent vector, much narrower than they are, and of a rotated
// part that all heads share; RMSNorm before each sub-layer; after a few layers with SwiGLU, mixtures of experts with a shared
// one. V2 weighs experts by a softmax; V3 by sigmoids, and corrects them where experts are chosen. DeepSeek-AI, arXiv:2405.04434,
// section 2, and 2412.19437, section 2.1. T rows of the step (sequences one after the other), N n_heads, A components of a head's
// key that do not rotate, P that do, H = A + P, B components of its value, R of the latent vector, Q of that of queries, D
// d_model, E experts, F d_ff (of layers without experts), V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/registry.h"
#include "model/rope_gguf.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct DeepSeekConfig : DecoderConfig {
  int64_t q_rank = 0, kv_rank = 0, d_still = 0, d_value = 0;  // Q (0: queries are made of the stream itself), R, A, B
  double latent_eps = 1e-6;                                   // of the norms of latent vectors
  double mscale_all_dim = 0;                                  // YaRN's, which scores are scaled by
  bool split_keys = false;                                    // a GGUF file has the rows of keys and of values apart
  int64_t dense_layers = 0, shared = 0;                       // layers without experts; units of the shared expert
  ExpertSpec experts = {};
};

struct LatentAttention {
  Weight W_Q;         // [N·H, D], or W_DQ [Q, D] and W_UQ [N·H, Q]
  Weight W_DQ, W_UQ;  //
  Weight W_DKV;       // [R + P, D] the latent vector, then the part of keys that rotates
  Weight W_UKV;       // [N·(A + B), R] of each head: keys, then values
  Weight W_O;         // [D, N·B]
  RmsNorm q_norm{{"attn.q_latent_norm", "self_attn.q_a_layernorm", "attn_q_a_norm"}};      // [Q]
  RmsNorm kv_norm{{"attn.kv_latent_norm", "self_attn.kv_a_layernorm", "attn_kv_a_norm"}};  // [R]
};

struct DeepSeekBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};  // [D]
  LatentAttention attn;
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                  // of a layer without experts: W_gate, W_in, W_out
  ExpertMlp experts;                                             // of one with E experts
  SharedExpert shared;                                           // beside them
};

class DeepSeek final : public RopeDecoder {
 public:
  DeepSeek(const DeepSeekConfig& c, bool stacked);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor attend(Context& ctx, const Step& step, int layer, const Tensor& x) const;
  AttentionSpec attention_spec(int64_t layer) const override;
  void add_attention(PartList& list, LatentAttention& w) const;

  const DeepSeekConfig c;
  std::vector<DeepSeekBlock> blocks;
};

AttentionSpec DeepSeek::attention_spec(int64_t layer) const {
  AttentionSpec spec = RopeDecoder::attention_spec(layer);  // scores divided by sqrt(H) #scale
  const double stretch = c.mscale_all_dim != 0 ? yarn_attention_factor(c.rope.factor, c.mscale_all_dim) : 1;
  spec.scale *= stretch * stretch;  // what YaRN would multiply queries and keys by, in all components #scale
  return spec;
}

// Keys and values of every head are made of the latent vector, and cached as they are. #attention
Tensor DeepSeek::attend(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  const LatentAttention& w = blocks[static_cast<size_t>(layer)].attn;
  const auto [down_q, down_kv] = linear(ctx, x, {c.q_rank > 0 ? w.W_DQ : w.W_Q, w.W_DKV});  // one pass over x #attention
  Tensor q = c.q_rank > 0 ? linear(ctx, w.q_norm(ctx, down_q), w.W_UQ) : down_q;            // [T, N·H] #attention
  const Tensor latent = w.kv_norm(ctx, take_columns(ctx, down_kv, 0, c.kv_rank));           // [T, R] #attention
  const Tensor rotating =
      split_heads(ctx, take_columns(ctx, down_kv, c.kv_rank, c.rope.rotary_dim), c.rope.rotary_dim);  // [T, 1, P]
  const Tensor kv = split_heads(ctx, linear(ctx, latent, w.W_UKV), c.d_still + c.d_value);            // [T, N, A + B] #attention
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, c.head_dim));                                       // [T, N, H] #attention
  Tensor k = join_heads(ctx, take_columns(ctx, kv, 0, c.d_still), rotating);                          // [T, N, H] #attention
  k = ctx.hook("attn.hook_k", k);                                                                     // [T, N, H] #attention
  const Tensor v = ctx.hook("attn.hook_v", take_columns(ctx, kv, c.d_still, c.d_value));              // [T, N, B] #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // the last P components #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, B] #attention
  return attention_output(ctx, "attn", z, w.W_O);                                        // [T, D] #attention
}

Tensor DeepSeek::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const DeepSeekBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);                                              // [T, D] #norm
  const Tensor attn_out = ctx.hook("hook_attn_out", attend(ctx, step, layer, x));      // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // The best few experts give Σ weight · (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ; the shared one is added with weight 1. #mlp
  Tensor update = layer < c.dense_layers ? w.mlp(ctx, y) : w.experts(ctx, y);    // [T, D] #mlp
  if (layer >= c.dense_layers) update = add(ctx, update, w.shared(ctx, y));      // [T, D] #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", update);                       // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

DeepSeek::DeepSeek(const DeepSeekConfig& config, bool stacked)
    : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    DeepSeekBlock& w = blocks[static_cast<size_t>(layer)];
    list.begin_layer();
    list.add(w.ln1);
    add_attention(list, w.attn);
    list.add(w.ln2);
    if (layer < c.dense_layers) {
      list.add(w.mlp);
      continue;
    }
    add_experts(list, w.experts, c.experts, stacked);
    if (c.experts.sigmoid) add_correction(list, w.experts, "mlp.gate.e_score_correction_bias");
    add_shared(list, w.shared, c.shared, "mlp.shared_experts");
  }
  end_tensors(list);
}

void DeepSeek::add_attention(PartList& list, LatentAttention& w) const {
  const Dim D = list.size.D, NH = list.size.NH, Q{"q_lora_rank", c.q_rank}, R{"kv_lora_rank", c.kv_rank};
  const Dim RP{"kv_lora_rank + qk_rope_head_dim", c.kv_rank + c.rope.rotary_dim};
  const Dim NAB{"n_heads * (qk_nope_head_dim + v_head_dim)", c.n_heads * (c.d_still + c.d_value)};
  const auto add_norm = [&](RmsNorm& norm, Dim size) {
    list.add(norm, size);
    norm.spec.eps = c.latent_eps;
  };
  if (c.q_rank > 0) {
    list.add(w.W_DQ, "attn.W_DQ", "self_attn.q_a_proj.weight", "attn_q_a.weight", Q, D);
    add_norm(w.q_norm, Q);
    list.add(w.W_UQ, "attn.W_UQ", "self_attn.q_b_proj.weight", "attn_q_b.weight", NH, Q);
  } else {
    list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D);
  }
  list.add(w.W_DKV, "attn.W_DKV", "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", RP, D);
  add_norm(w.kv_norm, R);
  StoredLayout layout;
  if (c.split_keys) layout.split = {.heads = c.n_heads, .keys = c.d_still, .values = c.d_value};
  list.add(w.W_UKV, "attn.W_UKV", "self_attn.kv_b_proj.weight", "attn_kv_b.weight", NAB, R, layout);
  list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D,
           {"n_heads * v_head_dim", c.n_heads * c.d_value});
}

void read_attention(const ModelConfig& config, DeepSeekConfig& c, bool pairs) {
  const ConfigReader& keys = config.keys;
  const auto size = [&](const char* key, const char* gguf, int64_t fallback) {
    return keys.positive(key, {gguf}, config.gguf ? std::optional<int64_t>() : fallback);
  };
  // Null or, in GGUF, nothing: queries have no latent vector.
  c.q_rank = config.gguf || keys.mentions("q_lora_rank")
                 ? keys.find_positive("q_lora_rank", {"attention.q_lora_rank"}).value_or(0)
                 : 1536;
  c.kv_rank = size("kv_lora_rank", "attention.kv_lora_rank", 512);
  c.head_dim = size("qk_rope_head_dim", "rope.dimension_count", 64);  // for read_rope: all of these rotate
  c.rope = read_rope(config, c, {.pairs = pairs});
  c.split_keys = keys.has("attention.key_length_mla");
  const int64_t whole = config.gguf ? keys.positive(c.split_keys ? "attention.key_length_mla" : "attention.key_length") : 0;
  c.d_value = size("v_head_dim", c.split_keys ? "attention.value_length_mla" : "attention.value_length", 128);
  if (config.gguf && whole <= c.head_dim) keys.fail("rope.dimension_count", "leaves no component of a key that does not rotate");
  c.d_still = config.gguf ? whole - c.head_dim : size("qk_nope_head_dim", "", 128);
  c.rope.first = c.d_still;
  c.head_dim += c.d_still;
  c.n_kv_heads = c.n_heads;  // made of one latent vector
  check_product(keys, "num_attention_heads", "n_heads * (qk_nope_head_dim + v_head_dim)", c.n_heads, c.head_dim + c.d_value,
                kMostInHeads);
  auto object = keys.find_object("rope_parameters");
  if (!object) object = keys.find_object("rope_scaling");
  if (object && c.rope.scaling == RopeSpec::Scaling::yarn) c.mscale_all_dim = object->find_number("mscale_all_dim").value_or(0);
  if (const auto all = keys.find_number("rope.scaling.yarn_log_multiplier"); all && c.rope.scaling == RopeSpec::Scaling::yarn) {
    c.mscale_all_dim = shortest(static_cast<double>(static_cast<float>(*all / 0.1)));  // it was f32
    if (!keys.has("rope.scaling.yarn_attn_factor")) c.rope.attention_factor = 1;
  }
}

void read_router(const ModelConfig& config, DeepSeekConfig& c, bool v3) {
  const ConfigReader& keys = config.keys;
  c.experts = read_experts(keys, "moe_intermediate_size", "expert_feed_forward_length",
                           config.gguf ? std::nullopt : std::optional<int64_t>(v3 ? 2048 : 1407));
  c.experts.activation = c.activation;
  const std::string scoring = keys.string("scoring_func", {}, v3 ? "sigmoid" : "softmax");
  if (scoring != (v3 ? "sigmoid" : "softmax"))
    keys.fail("scoring_func", std::string("is not supported by this family; expected ") + (v3 ? "sigmoid" : "softmax"));
  if (v3) {
    c.experts.groups = 8;
    c.experts.groups_used = 4;
    c.experts.scale = 2.5;
    if (keys.string("topk_method", {}, "noaux_tc") != "noaux_tc")
      keys.fail("topk_method", "is not supported by this family; expected noaux_tc");
    return read_grouped_router(config, c.experts);
  }
  c.experts.scale = keys.number("routed_scaling_factor", {"expert_weights_scale"}, 1.0);
  c.experts.renormalize = false;
  if (keys.flag("norm_topk_prob", {"expert_weights_norm"}, false))
    keys.fail("norm_topk_prob", "is not supported by this family, as in transformers; expected false");
  const std::string method = keys.string("topk_method", {}, config.gguf ? "group_limited_greedy" : "greedy");
  if (method == "group_limited_greedy") {
    c.experts.groups = keys.positive("n_group", {"expert_group_count"}, config.gguf ? std::optional<int64_t>(1) : std::nullopt);
    c.experts.groups_used =
        keys.positive("topk_group", {"expert_group_used_count"}, config.gguf ? std::optional<int64_t>(1) : std::nullopt);
    check_groups(keys, c.experts);
  } else if (method != "greedy") {
    keys.fail("topk_method", "is not known; expected greedy or group_limited_greedy");
  }
  keys.ignore({"n_group", "topk_group"});
}

std::unique_ptr<Model> read_deepseek(const ModelConfig& config, bool v3) {
  const ConfigReader& keys = config.keys;
  if (config.gguf) {
    const int64_t gating = keys.count(kGatingInGguf, {}, 1);
    if (gating != 1 && gating != 2) keys.fail(kGatingInGguf, "is not supported; expected 1 (V2's softmax) or 2 (V3's sigmoids)");
    v3 = gating == 2;
  }
  DeepSeekConfig c{
      read_decoder(config, v3 ? "deepseek_v3" : "deepseek_v2",
                   {.context_length = v3 ? 4096 : 2048, .n_kv_heads = 0, .head_dim = 0, .d_ff = v3 ? 18432 : 11008})};
  leave_out_further_layers(config, c);
  if (!config.gguf && keys.has("num_key_value_heads") && c.n_kv_heads != c.n_heads)
    keys.fail("num_key_value_heads", "differs from num_attention_heads; expected the same: all are made of one latent vector");
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  refuse_flags(keys, {"attention_bias", "mlp_bias"});
  read_attention(config, c, !v3 || keys.flag("rope_interleave", {}, true));
  read_router(config, c, v3);
  if (config.gguf) c.latent_eps = keys.number("vitrine.latent_norm_eps", {}, c.norm.eps);  // llama.cpp has one for all norms
  c.dense_layers = keys.count("first_k_dense_replace", {"leading_dense_block_count"}, v3 && !config.gguf ? 3 : 0);
  c.dense_layers = std::min(c.dense_layers, c.n_layers);
  const int64_t shared = keys.positive("n_shared_experts", {"expert_shared_count"}, v3 ? 1 : 2);
  check_product(keys, "n_shared_experts", "n_shared_experts * moe_intermediate_size", shared, c.experts.d_ff, kMostInHeads);
  c.shared = shared * c.experts.d_ff;
  if (keys.count("moe_layer_freq", {}, 1) != 1) keys.fail("moe_layer_freq", "is not supported, as in transformers; expected 1");
  keys.ignore({"aux_loss_alpha", "seq_aux", "ep_size", "output_router_logits", "router_aux_loss_coef", "qk_head_dim", "head_dim",
               "num_key_value_heads", "expert_weights_norm", "rope_interleave"});
  return std::make_unique<DeepSeek>(c, config.stacked_experts);
}

std::unique_ptr<Model> read_deepseek_v2(const ModelConfig& config) { return read_deepseek(config, false); }
std::unique_ptr<Model> read_deepseek_v3(const ModelConfig& config) { return read_deepseek(config, true); }

Json DeepSeek::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  write_grouped_router(keys, c.experts, format);
  if (format == ConfigFormat::gguf) {
    keys["attention.value_length"] = c.d_value;
    if (c.q_rank > 0) keys["attention.q_lora_rank"] = c.q_rank;
    keys["attention.kv_lora_rank"] = c.kv_rank;
    keys["leading_dense_block_count"] = c.dense_layers;
    keys["expert_shared_count"] = c.shared / c.experts.d_ff;
    if (c.latent_eps != c.norm.eps) keys["vitrine.latent_norm_eps"] = c.latent_eps;
    if (c.mscale_all_dim == 0) return keys;
    keys["rope.scaling.yarn_log_multiplier"] = 0.1 * c.mscale_all_dim;
    if (c.rope.attention_factor == 1) keys.erase("rope.scaling.yarn_attn_factor");
    return keys;
  }
  keys.erase("head_dim");
  keys["hidden_act"] = activation_key(c.activation);
  keys["q_lora_rank"] = c.q_rank > 0 ? Json(c.q_rank) : Json(nullptr);
  keys["kv_lora_rank"] = c.kv_rank;
  keys["qk_nope_head_dim"] = c.d_still;
  keys["qk_rope_head_dim"] = c.rope.rotary_dim;
  keys["v_head_dim"] = c.d_value;
  keys["first_k_dense_replace"] = c.dense_layers;
  keys["n_shared_experts"] = c.shared / c.experts.d_ff;
  keys["topk_method"] = c.experts.sigmoid ? "noaux_tc" : c.experts.groups > 1 ? "group_limited_greedy" : "greedy";
  keys["scoring_func"] = c.experts.sigmoid ? "sigmoid" : "softmax";
  if (c.experts.sigmoid) keys["rope_interleave"] = c.rope.layout == RopeLayout::pairs;
  if (c.mscale_all_dim != 0) keys["rope_scaling"]["mscale_all_dim"] = shortest(c.mscale_all_dim);
  return keys;
}

Family family_of_deepseek(const char* name, const char* architecture, const char* title, const char* paper,
                          std::unique_ptr<Model> (*make)(const ModelConfig&)) {
  return {.name = name,
          .gguf = "deepseek2",
          .architecture = architecture,
          .title = title,
          .paper = paper,
          .source = "src/engine/model/deepseek.cpp",
          .make = make,
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"},
          .has_forms = false};
}

}  // namespace

Family deepseek_v2_family() {
  return family_of_deepseek("deepseek_v2", "DeepseekV2ForCausalLM", "DeepSeek V2", "arXiv:2405.04434", read_deepseek_v2);
}

// GGUF has one name for both; its expert_gating_func tells them apart.
Family deepseek_v3_family() {
  return family_of_deepseek("deepseek_v3", "DeepseekV3ForCausalLM", "DeepSeek V3", "arXiv:2412.19437", read_deepseek_v3);
}

}  // namespace vitrine
