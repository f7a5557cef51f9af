// SmolLM3. Llama's text in which some layers, every fourth as published, rotate nothing: their heads compare content alone.
// Bakouch et al., https://huggingface.co/blog/smollm3; layers without RoPE: Yang et al., arXiv:2501.18795. T rows of the step
// (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include "model/decoder.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct SmolLm3Config : DecoderConfig {
  std::vector<bool> rotates = {};  // of each layer: RoPE acts
};

struct SmolLm3Block {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};          // [D]
  Attention attn;                                                // W_Q, W_K, W_V, W_O
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};  // [D]
  GatedMlp mlp;                                                  // W_gate, W_in, W_out
};

class SmolLm3 final : public RopeDecoder {
 public:
  explicit SmolLm3(const SmolLm3Config& c);
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;

  const SmolLm3Config c;
  std::vector<SmolLm3Block> blocks;
};

Tensor SmolLm3::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const SmolLm3Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);       // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);          // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  if (c.rotates[static_cast<size_t>(layer)]) {  // #rope
    q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));  // #rope
    k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));  // #rope
  }
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.attn.out(ctx, z));                 // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));    // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // SwiGLU: (silu(y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", w.mlp(ctx, y));                // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

SmolLm3::SmolLm3(const SmolLm3Config& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  // GGUF holds the rows of W_Q and W_K in another order, as Llama's, so that neighboring components rotate together.
  PartList list = begin_tensors({}, {.gguf_pairs = true});
  for (SmolLm3Block& w : blocks) list.add_layer(w.ln1, w.attn, w.ln2, w.mlp);
  end_tensors(list);
}

// Windows act only where use_sliding_window says so, on layers that rotate nothing if there is no list of layers.
std::vector<int64_t> read_smollm3_windows(const ModelConfig& config, const SmolLm3Config& c) {
  const ConfigReader& keys = config.keys;
  if (config.gguf || keys.flag("use_sliding_window", {}, false))
    return read_listed_windows(config, c.n_layers, kNoWindow,
                               [&](int64_t layer) { return !c.rotates[static_cast<size_t>(layer)]; });
  for (const std::string& type : keys.strings("layer_types"))
    if (type != "full_attention") keys.fail("layer_types", "names windows, although use_sliding_window is false or absent");
  keys.ignore({"sliding_window"});
  return std::vector<int64_t>(static_cast<size_t>(c.n_layers), kNoWindow);
}

std::unique_ptr<Model> read_smollm3(const ModelConfig& config) {
  SmolLm3Config c{read_decoder(config, "smollm3", {.context_length = 32768, .n_kv_heads = 4, .tied = true})};
  c.rope = read_rope(config, c, {.theta = 2e6, .pairs_in_gguf = true});
  c.activation = read_activation(config.keys, "hidden_act", {}, "silu");
  c.qkv_bias = c.o_bias = config.keys.flag("attention_bias", {}, false);
  c.mlp_bias = config.keys.flag("mlp_bias", {}, false);
  c.rotates = read_rotating_layers(config, c.n_layers);
  c.windows = read_smollm3_windows(config, c);
  return std::make_unique<SmolLm3>(c);
}

Json SmolLm3::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (c.has_windows()) write_listed_windows(keys, c.windows, format);
  write_rotating_layers(keys, c.rotates, format);
  if (format == ConfigFormat::gguf) return keys;
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  keys["mlp_bias"] = c.mlp_bias;
  keys["use_sliding_window"] = c.has_windows();
  return keys;
}

}  // namespace

Family smollm3_family() {
  return {.name = "smollm3",
          .gguf = "smollm3",
          .architecture = "SmolLM3ForCausalLM",
          .title = "SmolLM3",
          .paper = "arXiv:2501.18795",
          .source = "src/engine/model/smollm3.cpp",
          .make = read_smollm3};
}

}  // namespace vitrine
