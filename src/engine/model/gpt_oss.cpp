// gpt-oss. Grouped-query attention with RoPE (stretched by YaRN), biases and a learned sink for each head, a window on every
// other layer; a mixture of experts with clamped SwiGLU and biases; RMSNorm before each sub-layer. OpenAI, arXiv:2508.10925,
// section 2. T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, E experts, F
// d_ff (of an expert), V vocab_size.
#include "model/decoder.h"
#include "model/packed_weights.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

constexpr const char *kGateUp = "mlp.experts.gate_up_proj", *kGateUpBias = "mlp.experts.gate_up_proj_bias";

struct GptOssConfig : DecoderConfig {
  ExpertSpec experts = {};
  bool packed = false;  // experts in MXFP4 blocks, so [out, in] in a Hugging Face directory, too
};

struct GptOssBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};                     // [D]
  Attention attn;                                                           // W_Q, W_K, W_V, W_O, with biases
  Vector sinks;                                                             // [N]
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "post_attention_norm"}};  // [D]
  ExpertMlp mlp;  // router with bias [E]. GGUF: gate and in [F, D] + bias [F]; else in [2 F, D] + bias [2 F], both by turns;
                  // out [D, F] + bias [D]
};

class GptOss final : public RopeDecoder {
 public:
  GptOss(const GptOssConfig& c, bool gguf);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].mlp.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  AttentionSpec attention_spec(int64_t layer) const override;
  void add_experts(TensorList& list, std::vector<Expert>& experts, bool gguf) const;

  const GptOssConfig c;
  std::vector<GptOssBlock> blocks;
};

Tensor GptOss::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const GptOssBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.attn.out(ctx, z));                 // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));    // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // The best few of y W_routerᵀ + b go through their experts, weighed by the softmax over these few. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.mlp(ctx, y));                // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec GptOss::attention_spec(int64_t layer) const {
  AttentionSpec spec = RopeDecoder::attention_spec(layer);
  spec.sinks = &blocks[static_cast<size_t>(layer)].sinks;  // a score that takes a share of each softmax and gives nothing #sinks
  return spec;
}

GptOss::GptOss(const GptOssConfig& config, bool gguf) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (GptOssBlock& w : blocks) {
    list.add_layer(w.ln1);
    list.add_qkv(w.attn);
    list.add(w.sinks, "attn.sinks", "self_attn.sinks", "attn_sinks.weight", {"n_heads", c.n_heads});
    list.add_out(w.attn);
    list.add(w.ln2);
    list.add_with_bias(w.mlp.router, "mlp.router", "mlp.router", "ffn_gate_inp", {"n_experts", c.experts.count}, list.size.D);
    add_experts(list, w.mlp.experts, gguf);
    w.mlp.spec = c.experts;
  }
  end_tensors(list);
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
  c.qkv_bias = c.o_bias = keys.flag("attention_bias", {}, true);
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
  keys["attention_bias"] = c.qkv_bias;
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
          .source = "src/engine/model/gpt_oss.cpp",
          .make = read_gpt_oss};
}

}  // namespace vitrine
