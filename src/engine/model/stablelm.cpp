// StableLM. Llama's text with LayerNorm and RoPE on a quarter of each head; biases on queries, keys and values where the
// configuration says so. Bellagamba et al., "StableLM 2 1.6B technical report", arXiv:2402.17834, section 2.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct StableLmConfig : DecoderConfig {
  double mlp_dropout = 0;
};

struct StableLmBlock {
  LayerNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                  // W_Q, W_K, W_V, W_O
  LayerNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                    // W_gate, W_in, W_out
};

// Where dropout acts; a layer's sites are four apart.
enum StableLmSite : uint32_t { kStableLmPattern, kStableLmMlp };
uint32_t stablelm_site(StableLmSite site, int64_t layer) { return site + static_cast<uint32_t>(layer) * 4; }

class StableLm final : public Decoder {
 public:
  explicit StableLm(const StableLmConfig& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  AttentionSpec attention_spec(int64_t layer) const;

  const StableLmConfig c;
  std::vector<StableLmBlock> blocks;
  LayerNorm ln_final{{"ln_final", "model.norm", "output_norm"}};  // [D]
};

Tensor StableLm::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const StableLmBlock& w = blocks[static_cast<size_t>(layer)];
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
  Tensor mlp_out = w.mlp(ctx, y);  // [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.mlp_dropout, stablelm_site(kStableLmMlp, layer)));
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec StableLm::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .dropout = c.attn_dropout,
          .dropout_site = stablelm_site(kStableLmPattern, layer)};
}

StableLm::StableLm(const StableLmConfig& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation, .qkv_bias = c.qkv_bias});
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", list.size.V, list.size.D);
  for (StableLmBlock& w : blocks) list.add_layer(w.ln1, w.attn, w.ln2, w.mlp);
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", list.size.V, list.size.D);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_stablelm(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  StableLmConfig c{read_decoder(config, "stablelm", {.context_length = 4096, .n_kv_heads = 32})};
  if (c.head_dim * c.n_heads != c.d_model)
    keys.fail("head_dim", "is not supported by this family; expected hidden_size / num_attention_heads");
  if (!config.gguf && keys.has("rms_norm_eps")) keys.fail("rms_norm_eps", "is not read by this family; expected layer_norm_eps");
  c.norm = {.eps = read_eps(config, "layer_norm_eps", "attention.layer_norm_epsilon", 1e-5)};
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.qkv_bias = config.gguf ? keys.flag("attention_bias", {}, false) : keys.flag("use_qkv_bias", {}, false);
  c.rope = read_rope(config, c, {.share = 0.25});
  c.mlp_dropout = read_dropout(keys, "hidden_dropout", 0.0);
  refuse_flags(keys, {"use_parallel_residual", "qk_layernorm"});  // StableLM 2 12B alone has them
  return std::make_unique<StableLm>(c);
}

Json StableLm::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  keys["use_parallel_residual"] = false;
  if (format == ConfigFormat::gguf) {
    keys.erase("attention.layer_norm_rms_epsilon");
    keys["attention.layer_norm_epsilon"] = c.norm.eps;
    return keys;
  }
  for (const char* key : {"rms_norm_eps", "head_dim"}) keys.erase(key);
  keys["layer_norm_eps"] = shortest(c.norm.eps);
  keys["hidden_act"] = activation_key(c.activation);
  keys["use_qkv_bias"] = c.qkv_bias;
  keys["hidden_dropout"] = c.mlp_dropout;
  keys["partial_rotary_factor"] = static_cast<double>(c.rope.rotary_dim) / static_cast<double>(c.head_dim);
  return keys;
}

}  // namespace

Family stablelm_family() {
  return {.name = "stablelm",
          .gguf = "stablelm",
          .architecture = "StableLmForCausalLM",
          .title = "StableLM",
          .paper = "arXiv:2402.17834",
          .source = "src/engine/model/stablelm.cpp",
          .make = read_stablelm};
}

}  // namespace vitrine
