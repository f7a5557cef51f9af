// Phi-3 and Phi-4-mini. Llama's text with queries, keys and values in one stored matrix, the gate and what it gates in another;
// part of a head may rotate, and LongRoPE rotates long prompts otherwise than short ones. Abdin et al., arXiv:2404.14219, section
// 2; Ding et al., 2402.13753 (LongRoPE). T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim,
// D d_model, F d_ff, V vocab_size.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct Phi3Config : DecoderConfig {
  double resid_dropout = 0;
};

struct Phi3Block {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                // W_Q, W_K, W_V, W_O
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                  // W_gate, W_in, W_out
};

// Where dropout acts; a layer's sites are four apart.
enum Phi3Site : uint32_t { kPhi3Attention, kPhi3Mlp, kPhi3Pattern };
uint32_t phi3_site(Phi3Site site, int64_t layer) { return static_cast<uint32_t>(layer) * 4 + site; }

class Phi3 final : public RopeDecoder {
 public:
  explicit Phi3(const Phi3Config& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  AttentionSpec attention_spec(int64_t layer) const override;

  const Phi3Config c;
  std::vector<Phi3Block> blocks;
};

Tensor Phi3::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Phi3Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.resid_dropout, phi3_site(kPhi3Attention, layer)));
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  Tensor mlp_out = w.mlp(ctx, y);  // [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.resid_dropout, phi3_site(kPhi3Mlp, layer)));
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec Phi3::attention_spec(int64_t layer) const {
  AttentionSpec spec = RopeDecoder::attention_spec(layer);
  spec.dropout_site = phi3_site(kPhi3Pattern, layer);
  return spec;
}

Phi3::Phi3(const Phi3Config& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list = begin_tensors();
  const Dim D = list.size.D, NH = list.size.NH, GH = list.size.GH;
  const Dim all{"(n_heads + 2 * n_kv_heads) * head_dim", NH.size + 2 * GH.size};
  const StoredLayout q{.part = 0, .parts = 3, .before = 0, .whole = all},
      k{.part = 1, .parts = 3, .before = NH.size, .whole = all},
      v{.part = 2, .parts = 3, .before = NH.size + GH.size, .whole = all};
  for (Phi3Block& w : blocks) {
    list.add_layer(w.ln1);
    list.add(w.attn.W_Q, "attn.W_Q", "self_attn.qkv_proj.weight", "attn_qkv.weight", NH, D, q);
    list.add(w.attn.W_K, "attn.W_K", "self_attn.qkv_proj.weight", "attn_qkv.weight", GH, D, k);
    list.add(w.attn.W_V, "attn.W_V", "self_attn.qkv_proj.weight", "attn_qkv.weight", GH, D, v);
    list.add_out(w.attn);
    w.attn.head_dim = c.head_dim;
    list.add(w.ln2);
    list.add_stacked(w.mlp, "mlp.gate_up_proj", "mlp.down_proj", false);
  }
  end_tensors(list);
}

std::unique_ptr<Model> read_phi3(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Phi3Config c{read_decoder(config, "phi3", {.context_length = 4096, .n_kv_heads = 0})};
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.rope = read_rope(config, c, {.share = 1.0, .only_longrope = true, .original_context = 4096});
  c.resid_dropout = read_dropout(keys, "resid_pdrop", 0.0);
  keys.ignore({"embd_pdrop"});  // the reference reads it and uses it nowhere
  // llama.cpp writes 0 for no window.
  const bool window = !config.gguf || keys.find_count("attention.sliding_window").value_or(0) > 0;
  if (window) c.windows = read_windows(config, c.n_layers, kNoWindow, [](int64_t) { return true; });
  refuse_flags(keys, {"attention_bias", "mlp_bias", "lm_head_bias"});
  return std::make_unique<Phi3>(c);
}

Json Phi3::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    keys["attention.sliding_window"] = c.window_of_all();
    keys["rope.scaling.original_context_length"] = static_cast<int64_t>(c.rope.original_context);
    return keys;
  }
  keys["hidden_act"] = activation_key(c.activation);
  keys["resid_pdrop"] = c.resid_dropout;
  keys["sliding_window"] = c.window_of_all() == kNoWindow ? Json(nullptr) : Json(c.window_of_all());
  keys["original_max_position_embeddings"] = static_cast<int64_t>(c.rope.original_context);
  keys["partial_rotary_factor"] = static_cast<double>(c.rope.rotary_dim) / static_cast<double>(c.head_dim);
  return keys;
}

}  // namespace

Family phi3_family() {
  return {.name = "phi3",
          .gguf = "phi3",
          .architecture = "Phi3ForCausalLM",
          .title = "Phi-3",
          .paper = "arXiv:2404.14219",
          .source = "src/engine/model/phi3.cpp",
          .make = read_phi3,
          .ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_factors_short.weight", "rope_factors_long.weight"},
          .dropout = {.embedding = nullptr, .attention = "attention_dropout", .residual = "resid_pdrop"}};
}

}  // namespace vitrine
