// ERNIE 4.5 with a mixture of experts. Grouped-query attention with RoPE, where neighboring components rotate together; RMSNorm
// before each sub-layer; experts with SwiGLU and a shared one, chosen by corrected probabilities, in the layers that the
// configuration names, one MLP in the others. Baidu, ERNIE 4.5 Technical Report, section 2. T rows of the step (sequences one
// after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, E experts, F d_ff (of layers without experts), V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct ErnieMoeConfig : DecoderConfig {
  ExpertSpec experts = {};
  int64_t first = 0, last = 0, every = 1;  // layers with experts: every so manieth of these, counted from 1
  int64_t shared = 0;                      // units of the shared expert; 0: there is none

  bool has_experts(int64_t layer) const { return (layer + 1) % every == 0 && layer >= first && layer <= last; }
};

struct ErnieMoeBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                // W_Q, W_K, W_V, W_O
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                  // of a layer without experts: W_gate, W_in, W_out
  ExpertMlp experts;                                             // of one with E experts
  SharedExpert shared;                                           // beside them
};

class ErnieMoe final : public RopeDecoder {
 public:
  ErnieMoe(const ErnieMoeConfig& c, bool stacked);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor feed_forward(Context& ctx, int layer, const Tensor& y) const;

  const ErnieMoeConfig c;
  std::vector<ErnieMoeBlock> blocks;
};

// The softmax of y W_routerᵀ weighs the experts; the best few give Σ weight · (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ. #mlp
Tensor ErnieMoe::feed_forward(Context& ctx, int layer, const Tensor& y) const {
  const ErnieMoeBlock& w = blocks[static_cast<size_t>(layer)];
  if (!c.has_experts(layer)) return w.mlp(ctx, y);                    // [T, D] #mlp
  const Tensor routed = w.experts(ctx, y);                            // [T, D] #mlp
  return c.shared > 0 ? add(ctx, routed, w.shared(ctx, y)) : routed;  // [T, D] #mlp
}

Tensor ErnieMoe::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const ErnieMoeBlock& w = blocks[static_cast<size_t>(layer)];
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

  const Tensor y = w.ln2(ctx, resid_mid);                                        // [T, D] #norm
  const Tensor mlp_out = ctx.hook("hook_mlp_out", feed_forward(ctx, layer, y));  // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

ErnieMoe::ErnieMoe(const ErnieMoeConfig& config, bool stacked)
    : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    ErnieMoeBlock& w = blocks[static_cast<size_t>(layer)];
    list.add_layer(w.ln1, w.attn, w.ln2);
    if (!c.has_experts(layer)) {
      list.add(w.mlp);
      continue;
    }
    add_experts(list, w.experts, c.experts, stacked);
    // Published files have it beside the router, transformers inside.
    add_correction(list, w.experts,
                   stacked ? "mlp.gate.moe_statics.e_score_correction_bias" : "mlp.moe_statics.e_score_correction_bias", true);
    if (c.shared > 0) add_shared(list, w.shared, c.shared, "mlp.shared_experts");
  }
  end_tensors(list);
}

std::unique_ptr<Model> read_ernie4_5_moe(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  ErnieMoeConfig c{
      read_decoder(config, "ernie4_5_moe", {.context_length = 131072, .n_kv_heads = 4, .tied = true, .d_ff = 12288})};
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.rope = read_rope(config, c, {.theta = 500000, .pairs = true});
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.attn_dropout = 0;  // the reference reads no key for it
  c.qkv_bias = c.o_bias = c.mlp_bias = keys.flag(config.gguf ? "attention_bias" : "use_bias", {}, false);
  if (c.mlp_bias)
    keys.fail(config.gguf ? "attention_bias" : "use_bias", "is not supported; expected false, as in published models");
  c.experts = read_experts(keys, "moe_intermediate_size", "expert_feed_forward_length",
                           config.gguf ? std::nullopt : std::optional<int64_t>(1536));
  c.experts.activation = c.activation;
  c.experts.least_sum = keys.number("moe_norm_min", {"vitrine.moe_norm_min"}, 1e-12);
  if (!(c.experts.least_sum >= 0)) keys.fail("moe_norm_min", "must not be negative: the weights of experts are divided by it");
  c.router_loss = read_router_loss(keys, 0.001);
  c.first = keys.count("moe_layer_start_index", {"leading_dense_block_count"}, 1);
  const double last = keys.number("moe_layer_end_index", {}, -1.0);
  if (last != -1 && !(last >= 0 && last < ConfigReader::kLargest && last == std::floor(last)))
    keys.fail("moe_layer_end_index", "is no layer; expected a whole number from 0, or -1 for the last layer");
  c.last = last == -1 ? c.n_layers - 1 : static_cast<int64_t>(last);
  c.every = keys.positive("moe_layer_interval", {"interleave_moe_layer_step"}, 1);
  const int64_t shared = keys.count("moe_num_shared_experts", {"expert_shared_count"}, config.gguf ? 0 : 2);
  if (shared > 0)
    check_product(keys, "moe_num_shared_experts", "moe_num_shared_experts * moe_intermediate_size", shared, c.experts.d_ff,
                  kMostInHeads);
  c.shared = shared * c.experts.d_ff;
  keys.ignore({"expert_shared_feed_forward_length", "moe_capacity", "moe_gate", "moe_use_aux_free", "num_nextn_predict_layers"});
  return std::make_unique<ErnieMoe>(c, config.stacked_experts);
}

Json ErnieMoe::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  const int64_t shared = c.shared / c.experts.d_ff;
  if (format == ConfigFormat::gguf) {
    write_gguf_experts(keys, c.experts);
    keys["leading_dense_block_count"] = c.first;
    keys["interleave_moe_layer_step"] = c.every;
    if (shared > 0) keys["expert_shared_count"] = shared;
    if (shared > 0) keys["expert_shared_feed_forward_length"] = c.shared;
    if (c.experts.least_sum != 1e-12) keys["vitrine.moe_norm_min"] = c.experts.least_sum;
    return keys;
  }
  keys.erase("attention_dropout");
  keys["moe_norm_min"] = shortest(c.experts.least_sum);
  keys["hidden_act"] = activation_key(c.activation);
  keys["use_bias"] = c.o_bias;
  keys["moe_num_experts"] = c.experts.count;
  keys["moe_k"] = c.experts.per_row;
  keys["moe_intermediate_size"] = c.experts.d_ff;
  keys["moe_layer_start_index"] = c.first;
  keys["moe_layer_end_index"] = c.last;
  keys["moe_layer_interval"] = c.every;
  keys["moe_num_shared_experts"] = shared;
  keys["output_router_logits"] = c.router_loss > 0;
  if (c.router_loss > 0) keys["router_aux_loss_coef"] = c.router_loss;
  return keys;
}

}  // namespace

Family ernie4_5_moe_family() {
  return {.name = "ernie4_5_moe",
          .gguf = "ernie4_5-moe",
          .architecture = "Ernie4_5_MoeForCausalLM",
          .title = "ERNIE 4.5 MoE",
          .paper = "ERNIE 4.5 Technical Report",
          .source = "src/engine/model/ernie4_5_moe.cpp",
          .make = read_ernie4_5_moe,
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"},
          .ignored_prefixes = {"model.mtp_"},
          .dropout = {.embedding = nullptr, .attention = nullptr, .residual = nullptr},
          .has_forms = false,
          .scores_sequences = false};
}

}  // namespace vitrine
