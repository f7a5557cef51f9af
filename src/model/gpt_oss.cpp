// gpt-oss. Grouped-query attention with RoPE (stretched by YaRN), biases and a learned sink for each head, a window on every
// other layer; a mixture of experts with clamped SwiGLU and biases; RMSNorm before each sub-layer. OpenAI, arXiv:2508.10925,
// section 2. T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, E experts, F
// d_ff (of an expert), V vocab_size.
#include <algorithm>
#include <cmath>

#include "model/config.h"
#include "model/packed_weights.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

constexpr const char *kGateUp = "mlp.experts.gate_up_proj", *kGateUpBias = "mlp.experts.gate_up_proj_bias";

struct GptOssConfig : DecoderConfig {
  std::vector<int64_t> windows = {};  // of each layer; kNoWindow: global
  ExpertSpec experts = {};
  bool biases = true;   // of attention
  bool packed = false;  // experts in MXFP4 blocks, so [out, in] in a Hugging Face directory, too
};

struct GptOssBlock {
  Vector ln1, ln2;              // [D]
  Weight W_Q;                   // [N·H, D] + bias [N·H]
  Weight W_K, W_V;              // [G·H, D] + bias [G·H]
  Vector sinks;                 // [N]
  Weight W_O;                   // [D, N·H] + bias [D]
  Weight router;                // [E, D] + bias [E]
  std::vector<Expert> experts;  // E of them. GGUF: gate and in [F, D] + bias [F]; else in [2 F, D] + bias [2 F], both by turns;
                                // out [D, F] + bias [D]
};

class GptOss final : public Model {
 public:
  GptOss(const GptOssConfig& c, bool gguf);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  AttentionSpec attention_spec(int64_t layer) const;
  void add_experts(TensorList& list, std::vector<Expert>& experts, bool gguf) const;

  const GptOssConfig c;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<GptOssBlock> blocks;
  Vector ln_final;  // [D]
};

Tensor GptOss::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const GptOssBlock& w = blocks[static_cast<size_t>(layer)];
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

  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));        // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", attention_output(ctx, "attn", z, w.W_O));  // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));          // [T, D] #residual

  const Tensor y = rms_norm(ctx, "ln2", resid_mid, w.ln2, c.norm);  // [T, D] #norm
  // The best few of y W_routerᵀ + b go through their experts, weighed by the softmax over these few. #mlp
  const Tensor experts = expert_mlp(ctx, "mlp", y, w.router, w.experts, c.experts);  // [T, D] #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", experts);                          // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));      // [T, D] #residual
}

AttentionSpec GptOss::attention_spec(int64_t layer) const {
  return {
      .scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
      .window = c.windows[static_cast<size_t>(layer)],          // #window
      .sinks = &blocks[static_cast<size_t>(layer)].sinks,  // a score that takes a share of each softmax and gives nothing #sinks
      .dropout = c.attn_dropout,
      .dropout_site = static_cast<uint32_t>(layer)};
}

Tensor GptOss::embedded(Context& ctx, const Step& step) const {
  return ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
}

Tensor GptOss::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                              // [T, D]
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(&GptOss::block, *this, step, layer, x);  // #layers
  return rms_norm(ctx, "ln_final", x, ln_final, c.norm);  // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head GptOss::head() const { return {c.tied ? &W_E : &W_U, 0}; }  // #head

BlockSpec GptOss::block_spec(int64_t layer) const {
  return {.attention = attention_spec(layer), .rope = c.rope, .norm = c.norm, .activation = c.activation, .experts = c.experts};
}

GptOss::GptOss(const GptOssConfig& config, bool gguf) : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    GptOssBlock& w = blocks[static_cast<size_t>(layer)];
    list.layer(layer, "model.layers.");
    list.add(w.ln1, "ln1.w", "input_layernorm.weight", "attn_norm.weight", D);
    list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D);
    list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D);
    list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
    if (c.biases) {
      list.add(w.W_Q.bias, "attn.b_Q", "self_attn.q_proj.bias", "attn_q.bias", NH);
      list.add(w.W_K.bias, "attn.b_K", "self_attn.k_proj.bias", "attn_k.bias", GH);
      list.add(w.W_V.bias, "attn.b_V", "self_attn.v_proj.bias", "attn_v.bias", GH);
    }
    list.add(w.sinks, "attn.sinks", "self_attn.sinks", "attn_sinks.weight", {"n_heads", c.n_heads});
    list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH);
    if (c.biases) list.add(w.W_O.bias, "attn.b_O", "self_attn.o_proj.bias", "attn_output.bias", D);
    list.add(w.ln2, "ln2.w", "post_attention_layernorm.weight", "post_attention_norm.weight", D);
    list.add_with_bias(w.router, "mlp.router", "mlp.router", "ffn_gate_inp", {"n_experts", c.experts.count}, D);
    add_experts(list, w.experts, gguf);
  }
  list.end_layers();
  list.add(ln_final, "ln_final.w", "model.norm.weight", "output_norm.weight", D);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

// Hugging Face files hold gate and up of all experts in one tensor [E, D, 2 F], or [E, 2 F, D] in MXFP4 blocks, by turns; GGUF
// has a tensor [E, F, D] for each.
void GptOss::add_experts(TensorList& list, std::vector<Expert>& experts, bool gguf) const {
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.experts.d_ff}, pairs{"2 * d_ff", 2 * c.experts.d_ff};
  const auto n = static_cast<int>(c.experts.count);
  experts.resize(static_cast<size_t>(n));
  for (int e = 0; e < n; ++e) {
    Expert& expert = experts[static_cast<size_t>(e)];
    const std::string ours = "mlp.experts." + std::to_string(e) + ".";
    StoredLayout matrix{.by_columns = !c.packed, .expert = e, .experts = n, .experts_stacked = true}, vector = matrix;
    vector.by_columns = false;
    if (gguf) {
      StoredLayout half = matrix, half_vector = vector;
      half.parts = half_vector.parts = 2;
      half.gguf_apart = half_vector.gguf_apart = true;
      StoredLayout second = half, second_vector = half_vector;
      second.part = second_vector.part = 1;
      list.add(expert.gate, ours + "W_gate", kGateUp, "ffn_gate_exps.weight", F, D, half);
      list.add(expert.in, ours + "W_in", kGateUp, "ffn_up_exps.weight", F, D, second);
      list.add(expert.gate.bias, ours + "b_gate", kGateUpBias, "ffn_gate_exps.bias", F, half_vector);
      list.add(expert.in.bias, ours + "b_in", kGateUpBias, "ffn_up_exps.bias", F, second_vector);
    } else {
      StoredLayout both = matrix, both_vector = vector;
      both.gguf_odd = "ffn_up_exps.weight";
      both_vector.gguf_odd = "ffn_up_exps.bias";
      list.add(expert.in, ours + "W_gate_in", kGateUp, "ffn_gate_exps.weight", pairs, D, both);
      list.add(expert.in.bias, ours + "b_gate_in", kGateUpBias, "ffn_gate_exps.bias", pairs, both_vector);
    }
    list.add(expert.out, ours + "W_out", "mlp.experts.down_proj", "ffn_down_exps.weight", D, F, matrix);
    list.add(expert.out.bias, ours + "b_out", "mlp.experts.down_proj_bias", "ffn_down_exps.bias", D, vector);
  }
}

std::unique_ptr<Model> read_gpt_oss(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  GptOssConfig c{read_decoder(config, "gpt_oss", {.context_length = 131072, .n_kv_heads = 8, .head_dim = 64})};
  if (!config.gguf) c.norm.eps = read_eps(config, "rms_norm_eps", "", 1e-5);
  c.rope = read_rope(config, c,
                     {.theta = 150000,
                      .settings = {{"rope_type", "yarn"},
                                   {"factor", 32.0},
                                   {"beta_fast", 32.0},
                                   {"beta_slow", 1.0},
                                   {"truncate", false},
                                   {"original_max_position_embeddings", 4096}}});
  c.activation = Activation::silu;
  c.windows = read_windows(config, c.n_layers, 128, [](int64_t layer) { return layer % 2 == 0; });
  c.biases = keys.flag("attention_bias", {}, true);
  c.packed = !config.gguf && packing_method(keys) == "mxfp4";
  c.experts = read_experts(keys, "intermediate_size", "expert_feed_forward_length");
  c.experts.softmax_over_all = false;
  c.experts.limit = keys.number("swiglu_limit", {}, 7.0);
  c.experts.slope = keys.number("swiglu_alpha", {}, 1.702);
  if (!(c.experts.limit > 0)) keys.fail("swiglu_limit", "is not above 0; expected the largest gate");
  c.router_loss = read_router_loss(keys, 0.001);
  keys.ignore({"initial_context_length", "experts_per_token"});
  return std::make_unique<GptOss>(c, config.gguf);
}

Json GptOss::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  write_windows(keys, c.windows, format);
  if (format == ConfigFormat::gguf) {
    write_gguf_experts(keys, c.experts);
    return keys;
  }
  if (keys["rope_scaling"].is_null()) keys["rope_scaling"] = {{"rope_type", "default"}};  // silence is YaRN
  keys["attention_bias"] = c.biases;
  keys["num_local_experts"] = c.experts.count;
  keys["num_experts_per_tok"] = c.experts.per_row;
  keys["swiglu_limit"] = shortest(c.experts.limit);
  keys["swiglu_alpha"] = shortest(c.experts.slope);
  keys["output_router_logits"] = c.router_loss > 0;
  if (c.router_loss > 0) keys["router_aux_loss_coef"] = c.router_loss;
  return keys;
}

}  // namespace

Family gpt_oss_family() {
  return {.name = "gpt_oss",
          .gguf = "gpt-oss",
          .architecture = "GptOssForCausalLM",
          .title = "gpt-oss",
          .paper = "arXiv:2508.10925",
          .source = "src/model/gpt_oss.cpp",
          .make = read_gpt_oss,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight"}};
}

}  // namespace vitrine
