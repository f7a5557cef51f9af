// Llama and its kin: grouped-query attention with RoPE, SwiGLU, RMSNorm before each sub-layer. Touvron et al.,
// arXiv:2302.13971, section 2.2, and 2307.09288 (grouped queries). Mistral (2310.06825: a window on every layer) and Qwen 2
// (2407.10671: biases on queries, keys and values) are configurations of the same text.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct LlamaBlock {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                // W_Q, W_K, W_V, W_O
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                  // W_gate, W_in, W_out
};

class Llama final : public RopeDecoder {
 public:
  explicit Llama(const DecoderConfig& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const DecoderConfig c;
  std::vector<LlamaBlock> blocks;
};

Tensor Llama::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const LlamaBlock& w = blocks[static_cast<size_t>(layer)];
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
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.mlp(ctx, y));                // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

Llama::Llama(const DecoderConfig& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  // GGUF holds the rows of a Llama's W_Q and W_K in another order, so that neighboring components rotate together. Qwen 2's are
  // as in its own file.
  PartList list = begin_tensors({}, {.gguf_pairs = c.family != "qwen2"});
  for (LlamaBlock& w : blocks) list.add_layer(w.ln1, w.attn, w.ln2, w.mlp);
  end_tensors(list);
}

DecoderConfig read(const ModelConfig& config, const char* family, const DecoderDefaults& absent) {
  DecoderConfig c = read_decoder(config, family, absent);
  c.activation = read_activation(config.keys, "hidden_act", {}, "silu");
  refuse_flags(config.keys, {"rope_interleaved", "use_mrope"});  // published configurations say false
  return c;
}

bool everywhere(int64_t) { return true; }

std::unique_ptr<Model> read_llama(const ModelConfig& config) {
  DecoderConfig c = read(config, "llama", {.context_length = 2048, .n_kv_heads = 0});
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
  DecoderConfig c = read(config, "mistral", {.context_length = 131072, .n_kv_heads = 8});
  refuse_flags(config.keys, {"attention_bias", "mlp_bias"});
  c.rope = read_rope(config, c, {});
  c.windows = read_windows(config, c.n_layers, 4096, everywhere);
  return std::make_unique<Llama>(c);
}

std::unique_ptr<Model> read_qwen2(const ModelConfig& config) {
  DecoderConfig c = read(config, "qwen2", {.context_length = 32768, .n_kv_heads = 32});
  c.rope = read_rope(config, c, {});
  c.qkv_bias = true;
  c.windows = read_qwen_windows(config, c.n_layers);
  return std::make_unique<Llama>(c);
}

Json Llama::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    write_windows(keys, c.windows, format);
    return keys;
  }
  keys["hidden_act"] = activation_key(c.activation);
  if (c.family == "llama") {
    keys["attention_bias"] = c.qkv_bias;
    keys["mlp_bias"] = c.mlp_bias;
    // The configuration of a Llama has no key for windows, and its heads must divide the width.
    const bool divides = c.d_model % c.n_heads == 0;
    if (c.has_windows() || (!divides && !c.qkv_bias && !c.mlp_bias)) keys["model_type"] = "mistral";
  }
  if (keys["model_type"] == "mistral" || c.has_windows()) write_windows(keys, c.windows, format);
  if (c.family == "qwen2") keys["use_sliding_window"] = c.has_windows();
  return keys;
}

Family family_of_llamas(const char* name, const char* gguf, const char* architecture, const char* title, const char* paper,
                        std::unique_ptr<Model> (*make)(const ModelConfig&)) {
  return {.name = name,
          .gguf = gguf,
          .architecture = architecture,
          .title = title,
          .paper = paper,
          .source = "src/engine/model/llama.cpp",
          .make = make};
}

}  // namespace

Family llama_family() { return family_of_llamas("llama", "llama", "LlamaForCausalLM", "Llama", "arXiv:2302.13971", read_llama); }

// Llama's text with a window on every layer. GGUF files call it llama.
Family mistral_family() {
  Family mistral = family_of_llamas("mistral", "llama", "MistralForCausalLM", "Mistral", "arXiv:2310.06825", read_mistral);
  mistral.ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq"};
  return mistral;
}

// Llama's text with biases on queries, keys and values.
Family qwen2_family() { return family_of_llamas("qwen2", "qwen2", "Qwen2ForCausalLM", "Qwen 2", "arXiv:2407.10671", read_qwen2); }

}  // namespace vitrine
