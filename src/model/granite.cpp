// Granite 3, and Granite 4 without Mamba layers and experts. Llama's text with four factors: of the embeddings, of the scores in
// place of 1 / sqrt(head_dim), of what each sub-layer adds, and a divisor of the logits. Granite Team, IBM, Granite 3.0 Language
// Models (2024); factors of this kind: Yang et al., arXiv:2203.03466.
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

struct GraniteConfig : DecoderConfig {
  bool attention_bias = false, mlp_bias = false;
  bool positions = true;     // false: nothing turns (position_embedding_type of Granite 4)
  bool stacked_mlp = false;  // the file holds W_gate and W_in as one matrix
  double attention_multiplier = 1, residual_multiplier = 1, logits_scaling = 1;
};

struct GraniteBlock {
  Vector ln1, ln2;      // [D]
  Weight W_Q;           // [N·H, D]
  Weight W_K, W_V;      // [G·H, D]
  Weight W_O;           // [D, N·H]
  Weight W_gate, W_in;  // [F, D]
  Weight W_out;         // [D, F]
};

class Granite final : public Model {
 public:
  explicit Granite(const GraniteConfig& c);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  AttentionSpec attention_spec(int64_t layer) const;

  const GraniteConfig c;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<GraniteBlock> blocks;
  Vector ln_final;  // [D]
};

Tensor Granite::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const GraniteBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = rms_norm(ctx, "ln1", resid_pre, w.ln1, c.norm);  // [T, D] #norm
  auto [q, k, v] = linear(ctx, x, {w.W_Q, w.W_K, w.W_V});           // one pass over x #attention
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, c.head_dim));     // [T, N, H] #attention
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, c.head_dim));     // [T, G, H] #attention
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, c.head_dim));     // [T, G, H] #attention
  if (c.positions) {                                                // #rope
    q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));    // #rope
    k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));    // #rope
  }

  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = attention_output(ctx, "attn", z, w.W_O);                             // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", scale(ctx, attn_out, c.residual_multiplier));     // [T, D] #residual
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));    // [T, D] #residual

  const Tensor y = rms_norm(ctx, "ln2", resid_mid, w.ln2, c.norm);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  Tensor mlp_out = gated_mlp(ctx, "mlp", y, w.W_gate, w.W_in, w.W_out, c.activation);  // [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", scale(ctx, mlp_out, c.residual_multiplier));      // [T, D] #residual
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));        // [T, D] #residual
}

AttentionSpec Granite::attention_spec(int64_t layer) const {
  return {.scale = c.attention_multiplier,  // #scale
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

Tensor Granite::embedded(Context& ctx, const Step& step) const {
  const Tensor x = embed(ctx, step.tokens(), W_E);                  // [T, D] #embed
  return ctx.hook("hook_embed", scale(ctx, x, c.embedding_scale));  // #embedding-scale
}

Tensor Granite::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                               // [T, D]
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(&Granite::block, *this, step, layer, x);  // #layers
  return rms_norm(ctx, "ln_final", x, ln_final, c.norm);  // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Granite::head() const { return {.weight = c.tied ? &W_E : &W_U, .scale = 1 / c.logits_scaling}; }  // #head

BlockSpec Granite::block_spec(int64_t layer) const {
  BlockSpec spec{.attention = attention_spec(layer), .rope = {}, .norm = c.norm, .activation = c.activation};
  if (c.positions) spec.rope = c.rope;
  spec.residual_scale = c.residual_multiplier;
  return spec;
}

Granite::Granite(const GraniteConfig& config) : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  // GGUF holds the rows of W_Q and W_K in another order, as Llama's, so that neighbouring components rotate together.
  const StoredLayout qk{.gguf_pairs = true};
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    GraniteBlock& w = blocks[static_cast<size_t>(layer)];
    list.layer(layer, "model.layers.");
    list.add(w.ln1, "ln1.w", "input_layernorm.weight", "attn_norm.weight", D);
    list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D, qk);
    list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D, qk);
    list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
    if (c.attention_bias) {
      list.add(w.W_Q.bias, "attn.b_Q", "self_attn.q_proj.bias", "attn_q.bias", NH, qk);
      list.add(w.W_K.bias, "attn.b_K", "self_attn.k_proj.bias", "attn_k.bias", GH, qk);
      list.add(w.W_V.bias, "attn.b_V", "self_attn.v_proj.bias", "attn_v.bias", GH);
    }
    list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH);
    if (c.attention_bias) list.add(w.W_O.bias, "attn.b_O", "self_attn.o_proj.bias", "attn_output.bias", D);
    list.add(w.ln2, "ln2.w", "post_attention_layernorm.weight", "ffn_norm.weight", D);
    if (c.stacked_mlp) {
      const StoredLayout gate{.part = 0, .parts = 2, .gguf_apart = true}, in{.part = 1, .parts = 2, .gguf_apart = true};
      list.add(w.W_gate, "mlp.W_gate", "shared_mlp.input_linear.weight", "ffn_gate.weight", F, D, gate);
      list.add(w.W_in, "mlp.W_in", "shared_mlp.input_linear.weight", "ffn_up.weight", F, D, in);
      list.add(w.W_out, "mlp.W_out", "shared_mlp.output_linear.weight", "ffn_down.weight", D, F);
      continue;
    }
    list.add(w.W_gate, "mlp.W_gate", "mlp.gate_proj.weight", "ffn_gate.weight", F, D);
    list.add(w.W_in, "mlp.W_in", "mlp.up_proj.weight", "ffn_up.weight", F, D);
    list.add(w.W_out, "mlp.W_out", "mlp.down_proj.weight", "ffn_down.weight", D, F);
    if (c.mlp_bias) {
      list.add(w.W_gate.bias, "mlp.b_gate", "mlp.gate_proj.bias", "ffn_gate.bias", F);
      list.add(w.W_in.bias, "mlp.b_in", "mlp.up_proj.bias", "ffn_up.bias", F);
      list.add(w.W_out.bias, "mlp.b_out", "mlp.down_proj.bias", "ffn_down.bias", D);
    }
  }
  list.end_layers();
  list.add(ln_final, "ln_final.w", "model.norm.weight", "output_norm.weight", D);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  set_tensors(list.take());
}

// A factor, which GGUF leaves out where llama.cpp has nothing to multiply.
double read_factor(const ConfigReader& keys, const char* key, const char* gguf_key, double absent) {
  const double factor = keys.number(key, {gguf_key}, absent);
  if (!(factor > 0)) keys.fail(key, "must be above 0");
  return factor;
}

GraniteConfig read_config(const ModelConfig& config, const char* family) {
  const ConfigReader& keys = config.keys;
  GraniteConfig c{read_decoder(config, family, {.context_length = 2048, .n_kv_heads = 0})};
  c.rope = read_rope(config, c, {.pairs_in_gguf = true});
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.attention_bias = keys.flag("attention_bias", {}, false);
  const double usual = config.gguf ? 1 / std::sqrt(static_cast<double>(c.head_dim)) : 1.0;
  c.embedding_scale = read_factor(keys, "embedding_multiplier", "embedding_scale", 1);
  c.attention_multiplier = read_factor(keys, "attention_multiplier", "attention.scale", usual);
  c.residual_multiplier = read_factor(keys, "residual_multiplier", "residual_scale", 1);
  c.logits_scaling = read_factor(keys, "logits_scaling", "logit_scale", 1);
  return c;
}

// llama.cpp's converter writes them for a dense Granite 4, too, whose configuration has them.
void ignore_hybrid_keys(const ConfigReader& keys) {
  if (keys.count("expert_count", {}, 0) != 0)
    keys.fail("expert_count", "is not supported; expected 0: a Granite without experts");
  keys.ignore({"expert_used_count", "expert_shared_feed_forward_length", "ssm.conv_kernel", "ssm.state_size", "ssm.group_count",
               "ssm.inner_size", "ssm.time_step_rank"});
}

std::unique_ptr<Model> read_granite(const ModelConfig& config) {
  GraniteConfig c = read_config(config, "granite");
  if (config.gguf) ignore_hybrid_keys(config.keys);
  c.mlp_bias = config.keys.flag("mlp_bias", {}, false);
  c.positions = !config.gguf || config.keys.flag("rope.scaling.finetuned", {}, true);  // llama.cpp's word for it
  if (!c.positions) {                                                                  // Granite 3 has no word for it
    c.family = "granitemoehybrid";
    c.stacked_mlp = true;
    if (c.mlp_bias) config.keys.fail("mlp_bias", "is not a setting of Granite models without positions");
  }
  return std::make_unique<Granite>(c);
}

// Granite 4: what its text has beyond Granite 3's is refused by name, as long as it is there.
std::unique_ptr<Model> read_granitemoehybrid(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  if (keys.count("num_local_experts", {}, 8) != 0)
    keys.fail("num_local_experts", "is not supported; expected 0: this family is read here without experts");
  const std::vector<std::string> types = keys.strings("layer_types", {"layers_block_type"});
  if (std::any_of(types.begin(), types.end(),
                  [](const std::string& type) { return type != "attention" && type != "full_attention"; }))
    keys.fail("layer_types", "names Mamba layers, which are not supported; expected attention alone");
  GraniteConfig c = read_config(config, "granitemoehybrid");
  if (static_cast<int64_t>(types.size()) != c.n_layers)
    keys.fail("layer_types", "has " + std::to_string(types.size()) + " entries; expected one for each of " +
                                 std::to_string(c.n_layers) +
                                 " layers (without a list all are Mamba layers, which are not supported)");
  c.d_ff = keys.positive("shared_intermediate_size", {}, 1024);
  const std::string positions = keys.string("position_embedding_type", {}, "");
  if (positions != "rope" && positions != "nope" && !positions.empty())
    keys.fail("position_embedding_type", "is not supported; expected rope, nope or null");
  c.positions = positions == "rope";
  c.stacked_mlp = true;
  // Of the experts and Mamba layers that are not there.
  keys.ignore({"intermediate_size", "num_experts_per_tok", "output_router_logits", "router_aux_loss_coef", "mamba_n_heads",
               "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand", "mamba_chunk_size",
               "mamba_conv_bias", "mamba_proj_bias", "time_step_limit", "init_method", "normalization_function"});
  return std::make_unique<Granite>(c);
}

Json Granite::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    keys["embedding_scale"] = c.embedding_scale;
    keys["attention.scale"] = c.attention_multiplier;
    keys["residual_scale"] = c.residual_multiplier;
    keys["logit_scale"] = c.logits_scaling;
    if (!c.positions) keys["rope.scaling.finetuned"] = false;
    return keys;
  }
  keys["embedding_multiplier"] = whole_or_real(shortest(c.embedding_scale));
  keys["attention_multiplier"] = shortest(c.attention_multiplier);
  keys["residual_multiplier"] = shortest(c.residual_multiplier);
  keys["logits_scaling"] = whole_or_real(shortest(c.logits_scaling));
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.attention_bias;
  if (c.family == "granite") keys["mlp_bias"] = c.mlp_bias;
  if (c.family != "granitemoehybrid") return keys;
  keys["shared_intermediate_size"] = c.d_ff;
  keys["num_local_experts"] = 0;
  keys["num_experts_per_tok"] = 0;
  keys["position_embedding_type"] = c.positions ? "rope" : "nope";
  for (int64_t layer = 0; layer < c.n_layers; ++layer) keys["layer_types"].push_back("attention");
  return keys;
}

Family granite_family_of(const char* name, const char* architecture, const char* title,
                         std::unique_ptr<Model> (*make)(const ModelConfig&)) {
  return {.name = name,
          .architecture = architecture,
          .title = title,
          .paper = "arXiv:2203.03466",
          .source = "src/model/granite.cpp",
          .make = make,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight"}};
}

}  // namespace

Family granite_family() {
  Family granite = granite_family_of("granite", "GraniteForCausalLM", "Granite", read_granite);
  granite.gguf = "granite";
  return granite;
}

// Granite 4 with attention and a dense MLP in every layer. GGUF files call it granite.
Family granitemoehybrid_family() {
  Family granite =
      granite_family_of("granitemoehybrid", "GraniteMoeHybridForCausalLM", "Granite 4 (dense)", read_granitemoehybrid);
  granite.gguf = "granite";
  return granite;
}

}  // namespace vitrine
