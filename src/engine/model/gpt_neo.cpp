// GPT-Neo, the family of TinyStories. GPT-2's block with scores that are not divided by the root of the head's size, no biases
// on queries, keys and values, and a window on every other layer. Black et al., "GPT-Neo: large scale autoregressive language
// modeling with Mesh-TensorFlow", 2021; Eldan and Li, arXiv:2305.07759.
// T rows of the step (sequences one after the other), N n_heads, H head_dim, D d_model, F d_ff, V vocab_size, C context.
#include "model/decoder.h"
#include "model/registry.h"
#include "ops/elementwise.h"
#include "ops/embed.h"

namespace vitrine {
namespace {

struct GptNeoConfig : ModelShape {
  NormSpec norm = {};
  Activation activation = Activation::none;
  int64_t window = 0;            // of local layers
  std::vector<bool> local = {};  // of each layer
  double embd_dropout = 0, attn_dropout = 0, resid_dropout = 0;
};

struct GptNeoBlock {
  LayerNorm ln1{{.ours = "ln1", .huggingface = "ln_1"}};  // [D]
  Attention attn;                                         // W_Q, W_K, W_V [D, D]; W_O [D, D] + bias [D]
  LayerNorm ln2{{.ours = "ln2", .huggingface = "ln_2"}};  // [D]
  Mlp mlp;                                                // W_in [F, D] + bias [F], W_out [D, F] + bias [D]
};

// Where dropout acts; a layer's sites are four apart.
enum GptNeoSite : uint32_t { kGptNeoPattern, kGptNeoAttention, kGptNeoMlp, kGptNeoEmbedding };
uint32_t gpt_neo_site(GptNeoSite site, int64_t layer) { return site + static_cast<uint32_t>(layer) * 4; }

class GptNeo final : public Decoder {
 public:
  explicit GptNeo(const GptNeoConfig& c);
  Tensor embedded(Context& ctx, const Step& step) const override;
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor final_norm(Context& ctx, const Tensor& x) const override { return ln_final(ctx, x); }
  AttentionSpec attention_spec(int64_t layer) const;

  const GptNeoConfig c;
  Weight W_pos;  // [C, D]
  std::vector<GptNeoBlock> blocks;
  LayerNorm ln_final{{.ours = "ln_final", .huggingface = "transformer.ln_f"}};  // [D]
};

Tensor GptNeo::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const GptNeoBlock& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);                                                // [T, D] #norm
  const auto [q, k, v] = w.attn.qkv(ctx, x);                                             // [T, N, H] each #attention
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  Tensor attn_out = w.attn.out(ctx, z);                                                  // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", dropout(ctx, attn_out, c.resid_dropout, gpt_neo_site(kGptNeoAttention, layer)));
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));  // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  Tensor mlp_out = w.mlp(ctx, y);          // gelu(y W_inᵀ + b_in) W_outᵀ + b_out, [T, D] #mlp
  mlp_out = ctx.hook("hook_mlp_out", dropout(ctx, mlp_out, c.resid_dropout, gpt_neo_site(kGptNeoMlp, layer)));
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec GptNeo::attention_spec(int64_t layer) const {
  return {.scale = 1,                                                            // #scale
          .window = c.local[static_cast<size_t>(layer)] ? c.window : kNoWindow,  // #window
          .dropout = c.attn_dropout,
          .dropout_site = gpt_neo_site(kGptNeoPattern, layer)};
}

Tensor GptNeo::embedded(Context& ctx, const Step& step) const {
  const Tensor tokens = ctx.hook("hook_embed", embed(ctx, step.tokens(), W_E));            // [T, D] #embed
  const Tensor positions = ctx.hook("hook_pos_embed", embed_positions(ctx, step, W_pos));  // [T, D] #positions
  return dropout(ctx, add(ctx, tokens, positions), c.embd_dropout, kGptNeoEmbedding);
}

GptNeo::GptNeo(const GptNeoConfig& config) : Decoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  PartList list(c, {.norm = c.norm, .activation = c.activation});
  const auto& [D, F, V, H, NH, GH] = list.size;
  list.add(W_E, "W_E", "transformer.wte.weight", "", V, D);
  list.add(W_pos, "W_pos", "transformer.wpe.weight", "", {"context_length", c.context_length}, D);
  for (GptNeoBlock& w : blocks) {
    list.begin_layer("transformer.h.");
    list.add(w.ln1);
    w.attn.head_dim = c.head_dim;
    list.add(w.attn.W_Q, "attn.W_Q", "attn.attention.q_proj.weight", "", NH, D);
    list.add(w.attn.W_K, "attn.W_K", "attn.attention.k_proj.weight", "", NH, D);
    list.add(w.attn.W_V, "attn.W_V", "attn.attention.v_proj.weight", "", NH, D);
    list.add_with_bias(w.attn.W_O, "attn.O", "attn.attention.out_proj", "", D, NH);
    list.add(w.ln2);
    list.add(w.mlp, {"mlp.c_fc", ""}, {"mlp.c_proj", ""});
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "", V, D);
  set_tensors(list.take());
}

// Of each layer, whether it has the window: attention_layers, which attention_types says in short.
std::vector<bool> read_local(const ConfigReader& keys, int64_t n_layers) {
  std::vector<bool> local;
  for (const std::string& type : keys.strings("attention_layers")) {
    if (type != "global" && type != "local") keys.fail("attention_layers", "holds \"" + type + "\"; expected global or local");
    local.push_back(type == "local");
  }
  if (!keys.has("attention_layers")) {
    if (keys.has("attention_types"))
      keys.fail("attention_types",
                "is not read alone; add attention_layers with global or local for each layer, as transformers "
                "writes it");
    for (int64_t layer = 0; layer < 24; ++layer) local.push_back(layer % 2 == 1);  // of a config.json with neither
  }
  keys.ignore({"attention_types"});
  if (static_cast<int64_t>(local.size()) != n_layers)
    keys.fail("attention_layers", "has " + std::to_string(local.size()) + " entries; expected one for each of " +
                                      std::to_string(n_layers) + " layers");
  return local;
}

std::unique_ptr<Model> read_gpt_neo(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  GptNeoConfig c{{.family = "gpt_neo"}};
  c.d_model = keys.positive("hidden_size");
  c.n_layers = read_layers(keys, "num_layers", {"num_hidden_layers"});
  c.n_heads = keys.positive("num_heads", {"num_attention_heads"});
  c.d_ff = keys.find_positive("intermediate_size").value_or(4 * c.d_model);
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("max_position_embeddings", {}, 2048);
  c.norm = {.eps = read_eps(config, "layer_norm_epsilon", "", 1e-5)};
  c.activation = read_activation(keys, "activation_function", {}, "gelu_new");
  c.window = keys.positive("window_size", {}, 256);
  c.local = read_local(keys, c.n_layers);
  c.embd_dropout = read_dropout(keys, "embed_dropout", 0.0);
  c.attn_dropout = read_dropout(keys, "attention_dropout", 0.0);
  c.resid_dropout = read_dropout(keys, "resid_dropout", 0.0);
  c.tied = keys.flag("tie_word_embeddings", {}, true);
  if (c.d_model % c.n_heads != 0) keys.fail("num_heads", "does not divide hidden_size (" + std::to_string(c.d_model) + ")");
  c.set_heads(c.n_heads, c.d_model / c.n_heads);
  keys.ignore({"classifier_dropout"});
  return std::make_unique<GptNeo>(c);
}

// attention_types as its shortest form: a list of layers once.
Json GptNeo::config(ConfigFormat) const {
  Json layers = Json::array();
  for (const bool local : c.local) layers.push_back(local ? "local" : "global");
  return {{"model_type", "gpt_neo"},
          {"hidden_size", c.d_model},
          {"num_layers", c.n_layers},
          {"num_heads", c.n_heads},
          {"intermediate_size", c.d_ff},
          {"vocab_size", c.vocab_size},
          {"max_position_embeddings", c.context_length},
          {"window_size", c.window},
          {"attention_layers", layers},
          {"attention_types", Json::array({Json::array({layers, 1})})},
          {"layer_norm_epsilon", shortest(c.norm.eps)},
          {"activation_function", c.activation == Activation::gelu_tanh ? "gelu_new" : activation_key(c.activation)},
          {"embed_dropout", c.embd_dropout},
          {"attention_dropout", c.attn_dropout},
          {"resid_dropout", c.resid_dropout},
          {"tie_word_embeddings", c.tied}};
}

}  // namespace

Family gpt_neo_family() {
  return {.name = "gpt_neo",
          .architecture = "GPTNeoForCausalLM",
          .title = "GPT-Neo",
          .paper = "Black et al., GPT-Neo: large scale autoregressive language modeling with Mesh-TensorFlow, 2021",
          .source = "src/engine/model/gpt_neo.cpp",
          .make = read_gpt_neo,
          .optional_prefixes = {"transformer."},
          .ignored_suffixes = {".attn.attention.bias", ".attn.attention.masked_bias", "lm_head.weight"},
          .dropout = {.embedding = "embed_dropout", .attention = "attention_dropout", .residual = "resid_dropout"}};
}

}  // namespace vitrine
