// Command R, R+ (Cohere) and Command R7B (Cohere 2). One LayerNorm without a bias, whose result both attention and MLP read; both
// are added to the stream; logits have a factor. R+ normalizes each head's query and key. In Cohere 2 three layers of four have a
// window and RoPE, the fourth sees everything and rotates nothing. Cohere, arXiv:2504.00698, section 2; layers without RoPE: Yang
// et al., arXiv:2501.18795. T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F
// d_ff, V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct CohereConfig : DecoderConfig {
  double logit_scale = 1;
  bool interleaved = false;  // Cohere 2: RoPE acts within windows alone
  bool head_norms = false;   // of queries and keys
};

struct CohereBlock {
  LayerNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};                // [D]
  Attention attn;                                                        // W_Q, W_K, W_V, W_O
  LayerNorm q_norm{{"attn.q_norm", "self_attn.q_norm", "attn_q_norm"}};  // [N, H] with head_norms
  LayerNorm k_norm{{"attn.k_norm", "self_attn.k_norm", "attn_k_norm"}};  // [G, H]
  GatedMlp mlp;                                                          // W_gate, W_in, W_out
};

class Cohere final : public Decoder {
 public:
  explicit Cohere(const CohereConfig& c);
  Head head() const override { return {.weight = unembedding(), .scale = c.logit_scale}; }  // #head
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  AttentionSpec attention_spec(int64_t layer) const;

  const CohereConfig c;
  std::vector<CohereBlock> blocks;
  LayerNorm ln_final{{"ln_final", "model.norm", "output_norm"}};  // [D]
};

Tensor Cohere::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const CohereBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  if (c.head_norms) q = w.q_norm(ctx, q);  // weights of its own for each head #attention
  if (c.head_norms) k = w.k_norm(ctx, k);  // #attention
  if (!c.interleaved || c.windows[static_cast<size_t>(layer)] != kNoWindow) {  // #rope
    q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));               // #rope
    k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));               // #rope
  }
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.attn.out(ctx, z));                 // [T, D] #attention

  // The same norm once more, so that what the MLP reads has hooks of its own, as in other layers of this kind.
  const Tensor y = layer_norm(ctx, "ln2", resid_pre, w.ln1.w, w.ln1.b, c.norm);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.mlp(ctx, y));                // [T, D] #mlp
  const Tensor with_attn = add(ctx, resid_pre, attn_out);                        // [T, D] #residual
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, with_attn, mlp_out)));  // [T, D] #residual
}

AttentionSpec Cohere::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),                          // #scale
          .window = c.windows.empty() ? kNoWindow : c.windows[static_cast<size_t>(layer)],  // #window
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

Cohere::Cohere(const CohereConfig& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation, .qkv_bias = c.qkv_bias, .o_bias = c.o_bias});
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", list.size.V, list.size.D);
  for (CohereBlock& w : blocks) {
    list.begin_layer();
    list.add_without_bias(w.ln1);
    list.add_qkv(w.attn);
    if (c.head_norms) list.add_of_heads(w.q_norm, c.n_heads);
    if (c.head_norms) list.add_of_heads(w.k_norm, c.n_kv_heads);
    list.add_out(w.attn);
    list.add(w.mlp);
  }
  list.end_layers();
  list.add_without_bias(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", list.size.V, list.size.D);
  set_tensors(list.take());
}

CohereConfig read_coheres(const ModelConfig& config, const char* family, double theta) {
  const ConfigReader& keys = config.keys;
  CohereConfig c{read_decoder(config, family, {.context_length = 8192, .n_kv_heads = 0, .tied = true})};
  if (c.head_dim * c.n_heads != c.d_model)
    keys.fail("head_dim", "is not supported by this family; expected hidden_size / num_attention_heads");
  if (!config.gguf && keys.has("rms_norm_eps")) keys.fail("rms_norm_eps", "is not read by this family; expected layer_norm_eps");
  c.norm = {.eps = read_eps(config, "layer_norm_eps", "attention.layer_norm_epsilon", 1e-5)};
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.rope = read_rope(config, c, {.theta = theta, .pairs = true});
  c.qkv_bias = c.o_bias = keys.flag("attention_bias", {}, false);
  c.logit_scale = keys.number("logit_scale", {}, 0.0625);
  if (c.logit_scale == 0) keys.fail("logit_scale", "must not be 0: it is a factor of every logit");
  return c;
}

std::unique_ptr<Model> read_cohere(const ModelConfig& config) {
  CohereConfig c = read_coheres(config, "cohere", 500000);
  c.head_norms = config.keys.flag("use_qk_norm", {}, false);
  return std::make_unique<Cohere>(c);
}

std::unique_ptr<Model> read_cohere2(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  CohereConfig c = read_coheres(config, "cohere2", 10000);
  c.interleaved = true;
  refuse_flags(keys, {"use_qk_norm"});
  if (!config.gguf && keys.mentions("sliding_window") && !keys.has("sliding_window"))
    keys.fail("sliding_window", "is null; expected a number: RoPE acts within windows alone");
  const int64_t every = keys.positive("sliding_window_pattern", {}, 4);
  c.windows = read_windows(config, c.n_layers, 4096, [&](int64_t layer) { return (layer + 1) % every != 0; });
  // Other names of what the code does anyway.
  keys.ignore({"layer_switch", "order_of_interleaved_layers", "position_embedding_type", "rotary_pct", "use_embedding_sharing",
               "use_gated_activation", "use_parallel_block", "use_parallel_embedding"});
  return std::make_unique<Cohere>(c);
}

Json Cohere::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (c.interleaved) write_windows(keys, c.windows, format);
  keys["logit_scale"] = shortest(c.logit_scale);
  if (format == ConfigFormat::gguf) {
    keys.erase("attention.layer_norm_rms_epsilon");
    keys.emplace("rope.scaling.type", "none");
    keys["attention.layer_norm_epsilon"] = c.norm.eps;
    return keys;
  }
  for (const char* key : {"rms_norm_eps", "head_dim"}) keys.erase(key);
  keys["layer_norm_eps"] = shortest(c.norm.eps);
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  if (!c.interleaved) keys["use_qk_norm"] = c.head_norms;
  return keys;
}

Family family_of_coheres(const char* name, const char* gguf, const char* architecture, const char* title,
                         std::unique_ptr<Model> (*make)(const ModelConfig&)) {
  return {.name = name,
          .gguf = gguf,
          .architecture = architecture,
          .title = title,
          .paper = "arXiv:2504.00698",
          .source = "src/engine/model/cohere.cpp",
          .make = make,
          // Biases of norms, all 0, are in published files of Cohere 2.
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight", ".input_layernorm.bias",
                               "model.norm.bias"},
          .has_forms = false,
          .scores_sequences = false};
}

}  // namespace

Family cohere_family() { return family_of_coheres("cohere", "command-r", "CohereForCausalLM", "Command R", read_cohere); }

// The same with windows, within which alone RoPE acts.
Family cohere2_family() { return family_of_coheres("cohere2", "cohere2", "Cohere2ForCausalLM", "Command R7B", read_cohere2); }

}  // namespace vitrine
