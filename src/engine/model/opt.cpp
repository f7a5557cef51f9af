// OPT. Learned positions, LayerNorm with weight and bias before each sub-layer, full attention, a two-layer MLP with ReLU, tied
// output without bias. Zhang et al., arXiv:2205.01068, section 2.
// T rows of the step (sequences one after the other), N n_heads, H head_dim, D d_model, F d_ff, V vocab_size, C context.
#include <cmath>

#include "model/decoder.h"
#include "model/registry.h"
#include "ops/elementwise.h"
#include "ops/embed.h"

namespace vitrine {
namespace {

// Rows at the beginning of the table of positions that no position reads: position p is row p + 2.
constexpr int64_t kUnreadPositions = 2;

struct OptConfig : ModelShape {
  NormSpec norm = {};
  Activation activation = Activation::none;
  bool biases = true;  // of the matrices
  double attn_dropout = 0, resid_dropout = 0;
};

struct OptBlock {
  LayerNorm ln1{{.ours = "ln1", .huggingface = "self_attn_layer_norm"}};  // [D]
  Attention attn;                                                         // W_Q, W_K, W_V, W_O [D, D] + bias [D]
  LayerNorm ln2{{.ours = "ln2", .huggingface = "final_layer_norm"}};      // [D]
  Mlp mlp;                                                                // W_in [F, D] + bias [F], W_out [D, F] + bias [D]
};

// Where dropout acts; a layer's sites are four apart.
enum OptSite : uint32_t { kOptPattern, kOptAttention, kOptMlp };
uint32_t opt_site(OptSite site, int64_t layer) { return site + static_cast<uint32_t>(layer) * 4; }

class Opt final : public Decoder {
 public:
  explicit Opt(const OptConfig& c);
  Tensor embedded(Context& ctx, const Step& step) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  AttentionSpec attention_spec(int64_t layer) const;

  const OptConfig c;
  Weight W_pos_unread;  // [2, D]
  Weight W_pos;         // [C, D]
  std::vector<OptBlock> blocks;
  LayerNorm ln_final{{.ours = "ln_final", .huggingface = "model.decoder.final_layer_norm"}};  // [D]
};

Tensor Opt::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const OptBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);                                                // [T, D] #norm
  const auto [q, k, v] = w.attn.qkv(ctx, x);                                             // [T, N, H] each #attention
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.resid_dropout, opt_site(kOptAttention, layer)));
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  Tensor mlp_out = w.mlp(ctx, y);          // relu(y W_inᵀ + b_in) W_outᵀ + b_out, [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.resid_dropout, opt_site(kOptMlp, layer)));
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec Opt::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)),  // #scale
          .dropout = c.attn_dropout,
          .dropout_site = opt_site(kOptPattern, layer)};
}

Tensor Opt::embedded(Context& ctx, const Step& step) const {
  const Tensor tokens = ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));            // [T, D] #embed
  const Tensor positions = ctx.hook("hook_pos_embed", embed_positions(ctx, step, W_pos));  // [T, D] #positions
  return add(ctx, tokens, positions);
}

Opt::Opt(const OptConfig& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation, .qkv_bias = c.biases, .o_bias = c.biases});
  const auto& [D, F, V, H, NH, GH] = list.size;
  const Dim rows{"max_position_embeddings + 2", c.context_length + kUnreadPositions};
  constexpr const char* kTable = "model.decoder.embed_positions.weight";
  list.add(W_E, "W_E", "model.decoder.embed_tokens.weight", "", V, D);
  list.add(W_pos_unread, "W_pos_unread", kTable, "", {"2", kUnreadPositions}, D, {.part = 0, .parts = 2, .whole = rows});
  list.add(W_pos, "W_pos", kTable, "", {"max_position_embeddings", c.context_length}, D,
           {.part = 1, .parts = 2, .before = kUnreadPositions, .whole = rows});
  for (OptBlock& w : blocks) {
    list.begin_layer("model.decoder.layers.");
    list.add(w.ln1);
    list.add_qkv(w.attn);
    list.add_out(w.attn, "self_attn.out_proj");
    list.add(w.ln2);
    w.mlp.f = c.activation;
    list.add(w.mlp.W_in, "mlp.W_in", "fc1.weight", "", F, D);
    if (c.biases) list.add(w.mlp.W_in.bias, "mlp.b_in", "fc1.bias", "", F);
    list.add(w.mlp.W_out, "mlp.W_out", "fc2.weight", "", D, F);
    if (c.biases) list.add(w.mlp.W_out.bias, "mlp.b_out", "fc2.bias", "", D);
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "", V, D);
  set_tensors(list.take());
}

std::unique_ptr<Model> read_opt(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  OptConfig c{{.family = "opt"}};
  c.d_model = keys.positive("hidden_size");
  c.n_layers = read_layers(keys, "num_hidden_layers");
  c.n_heads = keys.positive("num_attention_heads");
  c.d_ff = keys.positive("ffn_dim");
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("max_position_embeddings", {}, 2048);
  c.norm = {.eps = 1e-5};  // torch's default, for which the configuration has no key
  c.activation = read_activation(keys, "activation_function", {}, "relu");
  c.biases = keys.flag("enable_bias", {}, true);
  c.attn_dropout = read_dropout(keys, "attention_dropout", 0.0);
  c.resid_dropout = read_dropout(keys, "dropout", 0.1);
  c.tied = keys.flag("tie_word_embeddings", {}, true);
  if (c.d_model % c.n_heads != 0)
    keys.fail("num_attention_heads", "does not divide hidden_size (" + std::to_string(c.d_model) + ")");
  c.set_heads(c.n_heads, c.d_model / c.n_heads);
  // OPT-350M alone has norms after its sub-layers and an embedding of another width.
  if (!keys.flag("do_layer_norm_before", {}, true))
    keys.fail("do_layer_norm_before", "is not supported; expected true, as in all published models but OPT-350M");
  if (keys.positive("word_embed_proj_dim", {}, c.d_model) != c.d_model)
    keys.fail("word_embed_proj_dim", "is not supported; expected hidden_size (" + std::to_string(c.d_model) + ")");
  if (!keys.flag("layer_norm_elementwise_affine", {}, true))
    keys.fail("layer_norm_elementwise_affine", "is not supported; expected true");
  if (keys.number("layerdrop", {}, 0.0) != 0) keys.fail("layerdrop", "is not supported; expected 0");
  refuse_flags(keys, {"_remove_final_layer_norm"});
  keys.ignore({"init_std", "prefix", "activation_dropout"});  // the last: of older files, read by nobody
  return std::make_unique<Opt>(c);
}

Json Opt::config(ConfigFormat) const {
  return {{"model_type", "opt"},
          {"hidden_size", c.d_model},
          {"num_hidden_layers", c.n_layers},
          {"num_attention_heads", c.n_heads},
          {"ffn_dim", c.d_ff},
          {"word_embed_proj_dim", c.d_model},
          {"vocab_size", c.vocab_size},
          {"max_position_embeddings", c.context_length},
          {"do_layer_norm_before", true},
          {"activation_function", activation_key(c.activation)},
          {"enable_bias", c.biases},
          {"attention_dropout", c.attn_dropout},
          {"dropout", c.resid_dropout},
          {"tie_word_embeddings", c.tied}};
}

}  // namespace

Family opt_family() {
  return {.name = "opt",
          .architecture = "OPTForCausalLM",
          .title = "OPT",
          .paper = "arXiv:2205.01068",
          .source = "src/engine/model/opt.cpp",
          .make = read_opt,
          .ignored_suffixes = {"lm_head.weight"},
          .dropout = {.embedding = nullptr, .attention = "attention_dropout", .residual = "dropout"}};
}

}  // namespace vitrine
