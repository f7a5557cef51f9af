// Granite 3, and Granite 4 without Mamba layers and experts. Llama's text with four factors: of the embeddings, of the scores in
// place of 1 / sqrt(head_dim), of what each sub-layer adds, and a divisor of the logits. Granite Team, IBM, Granite 3.0 Language
// Models (2024); factors of this kind: Yang et al., arXiv:2203.03466.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <algorithm>
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct GraniteConfig : DecoderConfig {
  bool positions = true;     // false: nothing turns (position_embedding_type of Granite 4)
  bool stacked_mlp = false;  // the file holds W_gate and W_in as one matrix
  double attention_multiplier = 1, residual_multiplier = 1, logits_scaling = 1;
};

struct GraniteBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                // W_Q, W_K, W_V, W_O
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                  // W_gate, W_in, W_out
};

class Granite final : public RopeDecoder {
 public:
  explicit Granite(const GraniteConfig& c);
  Head head() const override { return {.weight = unembedding(), .scale = 1 / c.logits_scaling}; }  // #head
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  AttentionSpec attention_spec(int64_t layer) const override;

  const GraniteConfig c;
  std::vector<GraniteBlock> blocks;
};

Tensor Granite::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const GraniteBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  if (c.positions) {                       // #rope
    q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));  // #rope
    k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));  // #rope
  }
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", scale(ctx, attn_out, c.residual_multiplier));     // [T, D] #residual
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));    // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  Tensor mlp_out = w.mlp(ctx, y);                                                  // [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", scale(ctx, mlp_out, c.residual_multiplier));  // [T, D] #residual
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));    // [T, D] #residual
}

AttentionSpec Granite::attention_spec(int64_t layer) const {
  AttentionSpec spec = RopeDecoder::attention_spec(layer);
  spec.scale = c.attention_multiplier;  // #scale
  return spec;
}

Granite::Granite(const GraniteConfig& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  // GGUF holds the rows of W_Q and W_K in another order, as Llama's, so that neighboring components rotate together.
  PartList list = begin_tensors({}, {.gguf_pairs = true});
  for (GraniteBlock& w : blocks) {
    list.add_layer(w.ln1, w.attn, w.ln2);
    c.stacked_mlp ? list.add_stacked(w.mlp, "shared_mlp.input_linear", "shared_mlp.output_linear", true) : list.add(w.mlp);
  }
  end_tensors(list);
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
  c.qkv_bias = c.o_bias = keys.flag("attention_bias", {}, false);
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
  keys["attention_bias"] = c.qkv_bias;
  if (c.family == "granite") keys["mlp_bias"] = c.mlp_bias;
  if (c.family != "granitemoehybrid") return keys;
  keys["shared_intermediate_size"] = c.d_ff;
  keys["num_local_experts"] = 0;
  keys["num_experts_per_tok"] = 0;
  keys["position_embedding_type"] = c.positions ? "rope" : "nope";
  if (2 * c.d_model % 128 != 0)
    keys["mamba_n_heads"] = 1;  // 128 if absent; it must divide twice the width, though nothing has it
  for (int64_t layer = 0; layer < c.n_layers; ++layer) keys["layer_types"].push_back("attention");
  return keys;
}

// GGUF files call both granite.
Family family_of_granites(const char* name, const char* architecture, const char* title,
                          std::unique_ptr<Model> (*make)(const ModelConfig&)) {
  return {.name = name,
          .gguf = "granite",
          .architecture = architecture,
          .title = title,
          .paper = "arXiv:2203.03466",
          .source = "src/engine/model/granite.cpp",
          .make = make};
}

}  // namespace

Family granite_family() { return family_of_granites("granite", "GraniteForCausalLM", "Granite", read_granite); }

// Granite 4 with attention and a dense MLP in every layer.
Family granitemoehybrid_family() {
  return family_of_granites("granitemoehybrid", "GraniteMoeHybridForCausalLM", "Granite 4 (dense)", read_granitemoehybrid);
}

}  // namespace vitrine
