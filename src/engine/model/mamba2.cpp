// Mamba 2. Layers of one kind and no attention: RMSNorm and a mixer, whose selective state space is a recurrence with a state for
// each head. Dao and Gu, arXiv:2405.21060, section 7 (the block). T rows of the step (sequences one after the other), D d_model,
// V vocab_size.
#include "model/decoder.h"
#include "model/mamba_mixer.h"
#include "model/registry.h"
#include "ops/elementwise.h"

namespace vitrine {
namespace {

constexpr MambaKeys kKeys{{"num_heads", 128}, {"n_groups", 8}, {"state_size", 128}, {"head_dim", 64}, {"conv_kernel", 4}};
constexpr int64_t kContext = 1 << 20;  // there is no limit: the number that llama.cpp's converter writes

struct Mamba2Config : ModelShape {
  NormSpec norm;
  MambaSpec mixer;
};

struct Mamba2Block {
  RmsNorm ln1{{"ln1", "norm", "attn_norm"}};  // [D]
  Mamba mixer;
};

class Mamba2 final : public Decoder {
 public:
  explicit Mamba2(const Mamba2Config& c);
  Tensor first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }

  const Mamba2Config c;
  std::vector<Mamba2Block> blocks;
  RmsNorm ln_final{{"ln_final", "backbone.norm_f", "output_norm"}};  // [D]
};

Tensor Mamba2::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Mamba2Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);                                             // [T, D] #norm
  const Tensor out = ctx.hook("hook_attn_out", first_sublayer(ctx, step, layer, x));  // [T, D] #ssm
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_pre, out)));           // [T, D] #residual
}

Tensor Mamba2::first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  return blocks[static_cast<size_t>(layer)].mixer(ctx, x, step, layer);
}

Mamba2::Mamba2(const Mamba2Config& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm});
  list.add(W_E, "W_E", "backbone.embeddings.weight", "token_embd.weight", list.size.V, list.size.D);
  for (Mamba2Block& w : blocks) {
    list.begin_layer("backbone.layers.");
    list.add(w.ln1);
    w.mixer.spec = c.mixer;
    add_mamba(list, w.mixer, "mixer");
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", list.size.V, list.size.D);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_mamba2(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Mamba2Config c;
  c.family = "mamba2";
  c.d_model = keys.positive("hidden_size", {"embedding_length"}, config.gguf ? std::optional<int64_t>() : 4096);
  c.n_layers = read_layers(keys, "num_hidden_layers", {"block_count"});
  c.vocab_size = keys.positive("vocab_size", {}, config.gguf ? std::optional<int64_t>() : 32768);
  check_product(keys, "hidden_size", "d_model * n_layers", c.d_model, c.n_layers, kMostInStream);
  c.context_length = keys.positive("context_length", {}, kContext);
  c.norm = {.eps = read_eps(config, "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", 1e-5)};
  c.mixer = read_mamba(config, kKeys);
  c.mixer.norm = c.norm;
  c.set_heads(c.mixer.sizes.n_heads, c.mixer.sizes.d_value);  // of the states: there is no attention
  c.mixer.conv_bias = keys.flag("use_conv_bias", {}, true);
  c.tied = keys.flag("tie_word_embeddings", {}, false);
  if (config.gguf) {
    keys.ignore({"feed_forward_length", "attention.head_count", "attention.head_count_kv"});
    return std::make_unique<Mamba2>(c);
  }
  const int64_t expand = keys.positive("expand", {}, 2);
  if (expand * c.d_model != c.mixer.inner())
    keys.fail("num_heads", "times head_dim must be expand * hidden_size (" + std::to_string(expand * c.d_model) + ")");
  c.mixer.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.mixer.bias = c.mixer.out_bias = keys.flag("use_bias", {}, false);
  refuse_flags(keys, {"rescale_prenorm_residual"});  // with it the reference divides W_out, which it has loaded
  // How the reference computes or draws fresh weights, or which it does not read.
  keys.ignore({"chunk_size", "residual_in_fp32", "time_step_floor", "time_step_max", "time_step_min", "time_step_rank",
               "time_step_init_scheme", "time_step_scale", "norm_before_gate", "rms_norm", "conv_bias", "intermediate_size",
               "use_mambapy"});
  return std::make_unique<Mamba2>(c);
}

Json Mamba2::config(ConfigFormat format) const {
  Json keys;
  if (format == ConfigFormat::gguf) {
    keys = write_gguf_sizes(c, "attention.layer_norm_rms_epsilon", c.norm.eps);
    keys["context_length"] = c.context_length;
    keys["attention.head_count"] = 0;
    if (!c.mixer.conv_bias) keys["use_conv_bias"] = false;  // a word of our own
  } else {
    keys = {{"model_type", "mamba2"},
            {"hidden_size", c.d_model},
            {"num_hidden_layers", c.n_layers},
            {"vocab_size", c.vocab_size},
            {"expand", c.mixer.inner() / c.d_model},
            {"layer_norm_epsilon", shortest(c.norm.eps)},
            {"hidden_act", activation_key(c.mixer.activation)},
            {"use_bias", c.mixer.bias},
            {"use_conv_bias", c.mixer.conv_bias},
            {"tie_word_embeddings", c.tied}};
  }
  write_mamba(keys, c.mixer, kKeys, format);
  return keys;
}

}  // namespace

Family mamba2_family() {
  return {.name = "mamba2",
          .gguf = "mamba2",
          .architecture = "Mamba2ForCausalLM",
          .title = "Mamba 2",
          .paper = "arXiv:2405.21060",
          .source = "src/engine/model/mamba2.cpp",
          .second_source = "src/engine/model/mamba_mixer.cpp",
          .make = read_mamba2,
          .optional_prefixes = {"backbone."},
          .dropout = {.attention = nullptr},
          .has_forms = false,
          .scales_residual_init = false,
          .scores_sequences = false};
}

}  // namespace vitrine
