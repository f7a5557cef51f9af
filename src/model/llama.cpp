// Llama and its kin: grouped-query attention with RoPE, SwiGLU, RMSNorm before each sub-layer. Touvron et al.,
// arXiv:2302.13971, section 2.2, and 2307.09288 (grouped queries). Mistral (2310.06825: a window on every layer) and Qwen 2
// (2407.10671: biases on queries, keys and values) are configurations of the same text.
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

struct LlamaConfig : DecoderConfig {
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  std::vector<int64_t> windows = {};  // of each layer; kNoWindow: global
};

struct LlamaBlock {
  Vector ln1, ln2;      // [D]
  Weight W_Q;           // [N·H, D]
  Weight W_K, W_V;      // [G·H, D]
  Weight W_O;           // [D, N·H]
  Weight W_gate, W_in;  // [F, D]
  Weight W_out;         // [D, F]
};

class Llama final : public Model {
 public:
  explicit Llama(const LlamaConfig& c);
  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override;
  BlockSpec block_spec(int64_t layer) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  AttentionSpec attention_spec(int64_t layer) const;

  const LlamaConfig c;
  Weight W_E;  // [V, D]
  Weight W_U;  // [V, D], if it is not the embedding
  std::vector<LlamaBlock> blocks;
  Vector ln_final;  // [D]
};

Tensor Llama::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const LlamaBlock& w = blocks[static_cast<size_t>(layer)];
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
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", gated_mlp(ctx, "mlp", y, w.W_gate, w.W_in, w.W_out, c.activation));  // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec Llama::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .window = c.windows[static_cast<size_t>(layer)],          // #window
          .dropout = c.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

Tensor Llama::embedded(Context& ctx, const Step& step) const {
  return ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
}

Tensor Llama::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                             // [T, D]
  for (int layer = 0; layer < c.n_layers; ++layer) x = ctx.checkpoint(&Llama::block, *this, step, layer, x);  // #layers
  return rms_norm(ctx, "ln_final", x, ln_final, c.norm);  // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Llama::head() const { return {c.tied ? &W_E : &W_U, 0}; }  // #head

BlockSpec Llama::block_spec(int64_t layer) const {
  return {.attention = attention_spec(layer), .rope = c.rope, .norm = c.norm, .activation = c.activation};
}

Llama::Llama(const LlamaConfig& config) : Model(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const Dim D{"d_model", c.d_model}, F{"d_ff", c.d_ff}, V{"vocab_size", c.vocab_size};
  const Dim NH{"n_heads * head_dim", c.n_heads * c.head_dim}, GH{"n_kv_heads * head_dim", c.n_kv_heads * c.head_dim};
  // GGUF holds the rows of a Llama's W_Q and W_K in another order, so that neighbouring components rotate together. Qwen 2's are
  // as in its own file.
  const StoredLayout qk{.gguf_pairs = c.family != "qwen2"};
  TensorList list;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    LlamaBlock& w = blocks[static_cast<size_t>(layer)];
    list.layer(layer, "model.layers.");
    list.add(w.ln1, "ln1.w", "input_layernorm.weight", "attn_norm.weight", D);
    list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D, qk);
    list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D, qk);
    list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D);
    if (c.qkv_bias) {
      list.add(w.W_Q.bias, "attn.b_Q", "self_attn.q_proj.bias", "attn_q.bias", NH, qk);
      list.add(w.W_K.bias, "attn.b_K", "self_attn.k_proj.bias", "attn_k.bias", GH, qk);
      list.add(w.W_V.bias, "attn.b_V", "self_attn.v_proj.bias", "attn_v.bias", GH);
    }
    list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH);
    if (c.o_bias) list.add(w.W_O.bias, "attn.b_O", "self_attn.o_proj.bias", "attn_output.bias", D);
    list.add(w.ln2, "ln2.w", "post_attention_layernorm.weight", "ffn_norm.weight", D);
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

LlamaConfig read(const ModelConfig& config, const char* family, const DecoderDefaults& absent) {
  LlamaConfig c{read_decoder(config, family, absent)};
  c.activation = read_activation(config.keys, "hidden_act", {}, "silu");
  refuse_flags(config.keys, {"rope_interleaved", "use_mrope"});  // published configurations say false
  return c;
}

bool everywhere(int64_t) { return true; }

std::unique_ptr<Model> read_llama(const ModelConfig& config) {
  LlamaConfig c = read(config, "llama", {.context_length = 2048, .n_kv_heads = 0});
  // The reference lets every layer of a Llama see everything, whatever its file says.
  if (!config.gguf && config.keys.has("sliding_window"))
    config.keys.fail("sliding_window", "is not a setting of Llama models; expected null, or the model_type mistral");
  c.rope = read_rope(config, c, {.pairs_in_gguf = true});
  c.windows = read_windows(config, c.n_layers, kNoWindow, everywhere);
  c.qkv_bias = c.o_bias = config.keys.flag("attention_bias", {}, false);
  c.mlp_bias = config.keys.flag("mlp_bias", {}, false);
  return std::make_unique<Llama>(c);
}

std::unique_ptr<Model> read_mistral(const ModelConfig& config) {
  LlamaConfig c = read(config, "mistral", {.context_length = 131072, .n_kv_heads = 8});
  refuse_flags(config.keys, {"attention_bias", "mlp_bias"});
  c.rope = read_rope(config, c, {});
  c.windows = read_windows(config, c.n_layers, 4096, everywhere);
  return std::make_unique<Llama>(c);
}

std::unique_ptr<Model> read_qwen2(const ModelConfig& config) {
  LlamaConfig c = read(config, "qwen2", {.context_length = 32768, .n_kv_heads = 32});
  c.rope = read_rope(config, c, {});
  c.qkv_bias = true;
  c.windows = read_qwen_windows(config, c.n_layers);
  return std::make_unique<Llama>(c);
}

Json Llama::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  const bool windows = std::any_of(c.windows.begin(), c.windows.end(), [](int64_t window) { return window != kNoWindow; });
  if (format == ConfigFormat::gguf) {
    write_windows(keys, c.windows, format);
    return keys;
  }
  keys["hidden_act"] = activation_key(c.activation);
  if (c.family == "llama") {
    keys["attention_bias"] = c.qkv_bias;
    keys["mlp_bias"] = c.mlp_bias;
    if (windows) keys["model_type"] = "mistral";  // the configuration of a Llama has no key for windows
  }
  if (c.family == "mistral" || windows) write_windows(keys, c.windows, format);
  if (c.family == "qwen2") keys["use_sliding_window"] = windows;
  return keys;
}

Family llama_family_of(const char* name, const char* architecture, const char* title, const char* paper,
                       std::unique_ptr<Model> (*make)(const ModelConfig&)) {
  return {.name = name,
          .architecture = architecture,
          .title = title,
          .paper = paper,
          .source = "src/model/llama.cpp",
          .make = make,
          .optional_prefixes = {"model."},
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"}};
}

}  // namespace

Family llama_family() {
  Family llama = llama_family_of("llama", "LlamaForCausalLM", "Llama", "arXiv:2302.13971", read_llama);
  llama.gguf = "llama";
  llama.ignored_suffixes.emplace_back("rope_freqs.weight");
  return llama;
}

// Llama's text with a window on every layer. GGUF files call it llama.
Family mistral_family() {
  Family mistral = llama_family_of("mistral", "MistralForCausalLM", "Mistral", "arXiv:2310.06825", read_mistral);
  mistral.gguf = "llama";
  return mistral;
}

// Llama's text with biases on queries, keys and values.
Family qwen2_family() {
  Family qwen2 = llama_family_of("qwen2", "Qwen2ForCausalLM", "Qwen 2", "arXiv:2407.10671", read_qwen2);
  qwen2.gguf = "qwen2";
  qwen2.ignored_suffixes.emplace_back("rope_freqs.weight");
  return qwen2;
}

}  // namespace vitrine
