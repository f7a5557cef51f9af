// Granite 3, and Granite 4, most of whose layers may have Mamba 2's mixer in the place of attention, and experts beside the MLP.
// Llama's text with four factors: of the embeddings, of the scores in place of 1 / sqrt(head_dim), of what each sub-layer adds,
// and a divisor of the logits. Granite Team, IBM, Granite 3.0 Language Models (2024); factors of this kind: Yang et al.,
// arXiv:2203.03466. T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V
// vocab_size.
#include <algorithm>
#include <cmath>

#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/mamba_mixer.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

constexpr const char* kHybrid =
    "granitehybrid";  // GGUF's name of those with Mamba layers or experts, and ours; config.json has one for all

struct GraniteConfig : DecoderConfig {
  std::vector<bool> attends = {};  // of each layer; the others have a mixer. Empty: all
  MambaSpec mixer = {};
  bool positions = true;     // false: nothing rotates (position_embedding_type of Granite 4)
  bool stacked_mlp = false;  // the file holds W_gate and W_in as one matrix
  double attention_multiplier = 1, residual_multiplier = 1, logits_scaling = 1;
  std::optional<ExpertSpec> experts = {};  // beside the MLP of each layer
  bool attends_in(int64_t layer) const { return attends.empty() || attends[static_cast<size_t>(layer)]; }
};

struct GraniteBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                // of a layer with attention: W_Q, W_K, W_V, W_O
  Mamba mixer;                                                   // of one without
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                  // W_gate, W_in, W_out
  ExpertMlp experts;                                             // beside it
};

class Granite final : public RopeDecoder {
 public:
  explicit Granite(const GraniteConfig& c);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Head head() const override { return {.weight = unembedding(), .scale = 1 / c.logits_scaling}; }  // #head
  Tensor first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const override;
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

  const Tensor x = w.ln1(ctx, resid_pre);                                              // [T, D] #norm
  Tensor attn_out = first_sublayer(ctx, step, layer, x);                               // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", scale(ctx, attn_out, c.residual_multiplier));   // [T, D] #residual
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  Tensor mlp_out = w.mlp(ctx, y);  // [T, D] #mlp
  if (c.experts) {                 // the best few of a router's choice, hooks under experts #mlp
    const ExpertMlp& e = w.experts;
    mlp_out = add(ctx, mlp_out, expert_mlp(ctx, "experts", y, e.router, e.experts, e.spec));  // #mlp
  }
  mlp_out = ctx.hook("hook_mlp_out", scale(ctx, mlp_out, c.residual_multiplier));  // [T, D] #residual
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));    // [T, D] #residual
}

// Either kind.
Tensor Granite::first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  const GraniteBlock& w = blocks[static_cast<size_t>(layer)];
  if (!c.attends_in(layer)) return w.mixer(ctx, x, step, layer);  // [T, D] #ssm
  auto [q, k, v] = w.attn.qkv(ctx, x);  // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  if (c.positions) {                    // #rope
    q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));  // #rope
    k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));  // #rope
  }
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  return w.attn.out(ctx, z);                                                             // [T, D] #attention
}

AttentionSpec Granite::attention_spec(int64_t layer) const {
  AttentionSpec spec = RopeDecoder::attention_spec(layer);
  spec.scale = c.attention_multiplier;  // #scale
  return spec;
}

// With experts GGUF calls the MLP a shared one.
void add_shared_mlp(PartList& list, GatedMlp& mlp) {
  const auto& [D, F, V, H, NH, GH] = list.size;
  const StoredLayout gate{.part = 0, .parts = 2, .gguf_apart = true}, in{.part = 1, .parts = 2, .gguf_apart = true};
  mlp.f = list.spec.activation;
  list.add(mlp.W_gate, "mlp.W_gate", "shared_mlp.input_linear.weight", "ffn_gate_shexp.weight", F, D, gate);
  list.add(mlp.W_in, "mlp.W_in", "shared_mlp.input_linear.weight", "ffn_up_shexp.weight", F, D, in);
  list.add(mlp.W_out, "mlp.W_out", "shared_mlp.output_linear.weight", "ffn_down_shexp.weight", D, F);
}

Granite::Granite(const GraniteConfig& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const ExpertNames names{.router = "block_sparse_moe.router.layer",
                          .gate_in_of_all = "block_sparse_moe.input_linear.weight",
                          .out_of_all = "block_sparse_moe.output_linear.weight"};
  // GGUF holds the rows of W_Q and W_K in another order, as Llama's, so that neighboring components rotate together.
  PartList list = begin_tensors({}, {.gguf_pairs = true});
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    GraniteBlock& w = blocks[static_cast<size_t>(layer)];
    list.add_layer(w.ln1);
    w.mixer.spec = c.mixer;
    if (c.attends_in(layer))
      list.add(w.attn);
    else
      add_mamba(list, w.mixer, "mamba");
    list.add(w.ln2);
    if (c.experts) {
      add_shared_mlp(list, w.mlp);
      add_experts(list, w.experts, *c.experts, true, names);
    } else if (c.stacked_mlp) {
      list.add_stacked(w.mlp, "shared_mlp.input_linear", "shared_mlp.output_linear", true);
    } else {
      list.add(w.mlp);
    }
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
  GraniteConfig c{read_decoder(
      config, family, {.context_length = 2048, .n_kv_heads = 0, .only_some_attend = std::string_view(family) != "granite"})};
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

// Which layers attend: by layer_types or, in GGUF, by their numbers of key and value heads; without either none.
std::vector<bool> read_granite_kinds(const ModelConfig& config, int64_t n_layers) {
  const ConfigReader& keys = config.keys;
  std::vector<bool> attends;
  const char* const listed = config.gguf ? "attention.head_count_kv" : "layer_types";
  if (config.gguf)
    for (const int64_t heads : keys.counts(listed)) attends.push_back(heads > 0);
  else
    for (const std::string& type : keys.strings(listed, {"layers_block_type"})) {
      attends.push_back(type == "attention" || type == "full_attention");
      if (!attends.back() && type != "mamba" && type != "linear_attention")
        keys.fail(listed, "holds \"" + type + "\"; expected attention or mamba");
    }
  if (attends.empty()) attends.assign(static_cast<size_t>(n_layers), false);
  if (attends.size() == 1 && config.gguf) attends.assign(static_cast<size_t>(n_layers), attends[0]);
  if (static_cast<int64_t>(attends.size()) != n_layers)
    keys.fail(listed, "has " + std::to_string(attends.size()) + " entries; expected one for each of " + std::to_string(n_layers) +
                          " layers");
  return attends;
}

std::unique_ptr<Model> read_granitemoehybrid(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  GraniteConfig c = read_config(config, "granitemoehybrid");
  c.attends = read_granite_kinds(config, c.n_layers);
  c.stacked_mlp = true;
  if (std::find(c.attends.begin(), c.attends.end(), false) != c.attends.end()) {
    c.family = kHybrid;
    c.mixer = read_hybrid_mamba(config, c);
    c.mixer.out_bias = c.mixer.bias;
  } else {
    c.attends.clear();
    keys.ignore({"mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand",
                 "mamba_conv_bias", "mamba_proj_bias", "time_step_limit"});
  }
  if (config.gguf) {
    c.positions = keys.flag("rope.scaling.finetuned", {}, true);  // llama.cpp's word for it
    if (keys.count("expert_count", {}, 0) > 0) {
      c.experts = read_experts(keys, "feed_forward_length", "feed_forward_length");
      c.experts->activation = c.activation;
      c.d_ff = keys.positive("expert_shared_feed_forward_length");
      c.family = kHybrid;
    } else {
      keys.ignore({"expert_used_count", "expert_shared_feed_forward_length"});
    }
    return std::make_unique<Granite>(c);
  }
  c.d_ff = keys.positive("shared_intermediate_size", {}, 1024);
  const std::string positions = keys.string("position_embedding_type", {}, "");
  if (positions != "rope" && positions != "nope" && !positions.empty())
    keys.fail("position_embedding_type", "is not supported; expected rope, nope or null");
  c.positions = positions == "rope";
  if (keys.count("num_local_experts", {}, 8) > 0) {
    c.experts = read_experts(keys, "intermediate_size", "", 11008);
    c.experts->activation = c.activation;
    c.router_loss = read_router_loss(keys, 0.001);
    c.family = kHybrid;
  } else {
    keys.ignore({"intermediate_size", "num_experts_per_tok", "output_router_logits", "router_aux_loss_coef"});
  }
  // How the reference computes.
  keys.ignore({"mamba_chunk_size", "init_method", "normalization_function"});
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
    if (c.experts) {
      write_gguf_experts(keys, *c.experts);
      keys.erase("expert_feed_forward_length");
      keys["feed_forward_length"] = c.experts->d_ff;
      keys["expert_shared_feed_forward_length"] = c.d_ff;
    }
    if (c.attends.empty()) return keys;
    write_hybrid_mamba(keys, c.mixer, format);
    Json& heads = keys["attention.head_count_kv"] = Json::array();
    for (const bool attends : c.attends) heads.push_back(attends ? c.n_kv_heads : 0);
    return keys;
  }
  keys["embedding_multiplier"] = whole_or_real(shortest(c.embedding_scale));
  keys["attention_multiplier"] = shortest(c.attention_multiplier);
  keys["residual_multiplier"] = shortest(c.residual_multiplier);
  keys["logits_scaling"] = whole_or_real(shortest(c.logits_scaling));
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  if (c.family == "granite") keys["mlp_bias"] = c.mlp_bias;
  if (!c.stacked_mlp) return keys;
  keys["model_type"] = "granitemoehybrid";
  keys["shared_intermediate_size"] = c.d_ff;
  keys["num_local_experts"] = c.experts ? c.experts->count : 0;
  keys["num_experts_per_tok"] = c.experts ? c.experts->per_row : 0;
  if (c.experts) {
    keys["intermediate_size"] = c.experts->d_ff;
    keys["output_router_logits"] = c.router_loss > 0;
    if (c.router_loss > 0) keys["router_aux_loss_coef"] = c.router_loss;
  }
  keys["position_embedding_type"] = c.positions ? "rope" : "nope";
  for (int64_t layer = 0; layer < c.n_layers; ++layer) keys["layer_types"].push_back(c.attends_in(layer) ? "attention" : "mamba");
  if (!c.attends.empty()) {
    write_hybrid_mamba(keys, c.mixer, format);
    keys["mamba_expand"] = c.mixer.inner() / c.d_model;
  } else if (2 * c.d_model % 128 != 0) {
    keys["mamba_n_heads"] = 1;  // 128 if absent; it must divide twice the width, though nothing has it
  }
  return keys;
}

// GGUF files call those with attention alone granite.
Family family_of_granites(const char* name, const char* gguf, const char* architecture, const char* title,
                          std::unique_ptr<Model> (*make)(const ModelConfig&)) {
  return {.name = name,
          .gguf = gguf,
          .architecture = architecture,
          .title = title,
          .paper = "arXiv:2203.03466",
          .source = "src/engine/model/granite.cpp",
          .second_source = "src/engine/model/mamba_mixer.cpp",
          .make = make,
          .scores_sequences = false};
}

}  // namespace

Family granite_family() { return family_of_granites("granite", "granite", "GraniteForCausalLM", "Granite", read_granite); }

// Granite 4 with attention and a dense MLP in every layer.
Family granitemoehybrid_family() {
  return family_of_granites("granitemoehybrid", "granite", "GraniteMoeHybridForCausalLM", "Granite 4 (dense)",
                            read_granitemoehybrid);
}

// Granite 4 with Mamba layers or experts, whose config.json says granitemoehybrid, too.
Family granitehybrid_family() {
  Family family =
      family_of_granites(kHybrid, kHybrid, "GraniteMoeHybridForCausalLM", "Granite 4 (hybrid)", read_granitemoehybrid);
  family.has_forms = false;
  return family;
}

}  // namespace vitrine
