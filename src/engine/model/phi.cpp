// Phi-1, Phi-1.5 and Phi-2. One LayerNorm, whose result both attention and MLP read; both are added to the stream; a part of each
// head is rotated; biases everywhere, at the output too. Gunasekar et al., arXiv:2306.11644, section 2.3; Li et al., 2309.05463.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct PhiConfig : DecoderConfig {
  double embd_dropout = 0, resid_dropout = 0;
};

struct PhiBlock {
  LayerNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};  // [D]
  Attention attn;                                          // W_Q, W_K, W_V, W_O with biases
  Mlp mlp;                                                 // W_in [F, D] + bias [F], W_out [D, F] + bias [D]
};

// Where dropout acts; a layer's sites are four apart.
enum PhiSite : uint32_t { kPhiPattern, kPhiAttention, kPhiMlp, kPhiEmbedding };
uint32_t phi_site(PhiSite site, int64_t layer) { return site + static_cast<uint32_t>(layer) * 4; }

class Phi final : public Decoder {
 public:
  explicit Phi(const PhiConfig& c);
  Tensor embedded(Context& ctx, const Step& step) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  AttentionSpec attention_spec(int64_t layer) const;

  const PhiConfig c;
  std::vector<PhiBlock> blocks;
  LayerNorm ln_final{{"ln_final", "model.final_layernorm", "output_norm"}};  // [D]
};

Tensor Phi::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const PhiBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.resid_dropout, phi_site(kPhiAttention, layer)));

  // The same norm once more, so that what the MLP reads has hooks of its own, as in TransformerLens.
  const Tensor y = layer_norm(ctx, "ln2", resid_pre, w.ln1.w, w.ln1.b, c.norm);  // [T, D] #norm
  Tensor mlp_out = w.mlp(ctx, y);  // gelu(y W_inᵀ + b_in) W_outᵀ + b_out, [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.resid_dropout, phi_site(kPhiMlp, layer)));
  const Tensor both = add(ctx, attn_out, mlp_out);                            // [T, D] #residual
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_pre, both)));  // [T, D] #residual
}

AttentionSpec Phi::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .dropout = c.attn_dropout,
          .dropout_site = phi_site(kPhiPattern, layer)};
}

Tensor Phi::embedded(Context& ctx, const Step& step) const {
  const Tensor tokens = ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));  // [T, D] #embed
  return dropout(ctx, tokens, c.embd_dropout, kPhiEmbedding);
}

Phi::Phi(const PhiConfig& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation, .qkv_bias = true, .o_bias = true});
  const auto& [D, F, V, H, NH, GH] = list.size;
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", V, D);
  for (PhiBlock& w : blocks) {
    list.begin_layer();
    list.add(w.ln1);
    list.add_qkv(w.attn);
    list.add_out(w.attn, "self_attn.dense");
    list.add(w.mlp, {"mlp.fc1", "ffn_up"}, {"mlp.fc2", "ffn_down"});
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", V, D);
  list.add((c.tied ? W_E : W_U).bias, "b_U", "lm_head.bias", "output.bias", V);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_phi(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  PhiConfig c{read_decoder(config, "phi", {.context_length = 2048, .n_kv_heads = 0})};
  if (c.head_dim * c.n_heads != c.d_model)
    keys.fail("head_dim", "is not supported by this family; expected hidden_size / num_attention_heads");
  if (!config.gguf && keys.has("rms_norm_eps")) keys.fail("rms_norm_eps", "is not read by this family; expected layer_norm_eps");
  c.norm = {.eps = read_eps(config, "layer_norm_eps", "attention.layer_norm_epsilon", 1e-5)};
  c.activation = read_activation(keys, "hidden_act", {}, "gelu_new");
  c.rope = read_rope(config, c, {.share = 0.5});
  c.embd_dropout = read_dropout(keys, "embd_pdrop", 0.0);
  c.resid_dropout = read_dropout(keys, "resid_pdrop", 0.0);
  refuse_flags(keys, {"qk_layernorm"});  // no published model has it
  return std::make_unique<Phi>(c);
}

Json Phi::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    keys.erase("attention.layer_norm_rms_epsilon");
    keys["attention.layer_norm_epsilon"] = c.norm.eps;
    return keys;
  }
  for (const char* key : {"rms_norm_eps", "head_dim"}) keys.erase(key);
  keys["layer_norm_eps"] = shortest(c.norm.eps);
  keys["hidden_act"] = c.activation == Activation::gelu_tanh ? "gelu_new" : activation_key(c.activation);
  keys["embd_pdrop"] = c.embd_dropout;
  keys["resid_pdrop"] = c.resid_dropout;
  keys["partial_rotary_factor"] = static_cast<double>(c.rope.rotary_dim) / static_cast<double>(c.head_dim);
  return keys;
}

}  // namespace

Family phi_family() {
  return {.name = "phi",
          .gguf = "phi2",
          .architecture = "PhiForCausalLM",
          .title = "Phi-2",
          .paper = "arXiv:2306.11644",
          .source = "src/engine/model/phi.cpp",
          .make = read_phi,
          .dropout = {.embedding = "embd_pdrop", .attention = "attention_dropout", .residual = "resid_pdrop"},
          .has_forms = false};
}

}  // namespace vitrine
