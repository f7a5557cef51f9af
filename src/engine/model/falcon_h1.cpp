// Falcon-H1. In every layer attention and Mamba 2's mixer read one normalized stream, and both are added to it; SwiGLU, RMSNorm
// before each of the two steps, RoPE. Products have factors of their own, which GGUF files hold in their weights. Technology
// Innovation Institute, arXiv:2507.22448.
// T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff, V vocab_size.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/decoder.h"
#include "model/mamba_mixer.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

struct FalconH1Config : DecoderConfig {
  MambaSpec mixer = {};                        // with the factors of what it reads, makes of it and gives
  double attention_in = 1, attention_out = 1;  // of what attention reads, and of what it gives
  double key = 1, gate = 1, mlp_out = 1, logits = 1;
};

struct FalconH1Block {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};  // [D]
  Attention attn;                                        // W_Q, W_K, W_V, W_O
  Mamba mixer;
  RmsNorm ln2{{"ln2"}};  // [D]
  GatedMlp mlp;          // W_gate, W_in, W_out
};

class FalconH1 final : public RopeDecoder {
 public:
  explicit FalconH1(const FalconH1Config& c);
  Head head() const override { return {.weight = unembedding(), .scale = c.logits}; }  // #head
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  Tensor attend(Context& ctx, const Step& step, int layer, const Tensor& x) const;
  AttentionSpec attention_spec(int64_t layer) const override;
  void add_attention(PartList& list, Attention& w) const;
  void add_mlp(PartList& list, GatedMlp& w) const;

  const FalconH1Config c;
  std::vector<FalconH1Block> blocks;
};

Tensor times(Context& ctx, const Tensor& x, double factor) { return factor == 1 ? x : scale(ctx, x, factor); }

Tensor FalconH1::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const FalconH1Block& w = blocks[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  // attention_in multiplies queries, keys and values alike: the scores have its square, and the result has it.
  Tensor attn_out = attend(ctx, step, layer, x);                                                 // [T, D] #attention
  attn_out = ctx.hook("hook_attn_out", times(ctx, attn_out, c.attention_in * c.attention_out));  // [T, D] #attention
  Tensor ssm_out = w.mixer(ctx, times(ctx, x, c.mixer.in_scale), step, layer);                   // [T, D] #ssm
  ssm_out = ctx.hook("hook_ssm_out", times(ctx, ssm_out, c.mixer.out_scale));                    // [T, D] #ssm
  const Tensor both = add(ctx, ssm_out, attn_out);                                               // [T, D] #residual
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, both));                // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // SwiGLU: (silu(gate · y W_gateᵀ) ⊙ y W_inᵀ) W_outᵀ, with d_ff hidden units. #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", times(ctx, w.mlp(ctx, y), c.mlp_out));  // #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));           // [T, D] #residual
}

Tensor FalconH1::attend(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  const Attention& w = blocks[static_cast<size_t>(layer)].attn;
  auto [q, k, v] = w.qkv(ctx, x);  // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));                           // #rope
  k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));                           // #rope
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  return w.out(ctx, z);                                                                  // [T, D] #attention
}

AttentionSpec FalconH1::attention_spec(int64_t layer) const {
  AttentionSpec spec = RopeDecoder::attention_spec(layer);  // scores divided by sqrt(H) #scale
  spec.scale *= c.key * c.attention_in * c.attention_in;    // #scale
  return spec;
}

StoredLayout in_gguf(double first, double second = 1) {
  return {.gguf_factors = {.first = static_cast<float>(first), .second = static_cast<float>(second)}};
}

FalconH1::FalconH1(const FalconH1Config& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  ln_final.name = {"ln_final", "model.final_layernorm", "output_norm"};
  PartList list(c, {.norm = c.norm, .activation = c.activation});
  const bool one_table = !c.tied || c.embedding_scale == c.logits;  // that GGUF could hold
  list.add(W_E, "W_E", "model.embed_tokens.weight", one_table ? "token_embd.weight" : "", list.size.V, list.size.D,
           in_gguf(c.embedding_scale));
  for (FalconH1Block& w : blocks) {
    list.add_layer(w.ln1);
    add_attention(list, w.attn);
    w.mixer.spec = c.mixer;
    add_mamba(list, w.mixer, "mamba");
    w.ln2.spec = c.norm;
    list.add(w.ln2.w, "ln2.w", "pre_ff_layernorm.weight", "ffn_norm", list.size.D);  // llama.cpp's name has no ".weight"
    add_mlp(list, w.mlp);
  }
  list.end_layers();
  list.add(ln_final);
  if (!c.tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", list.size.V, list.size.D, in_gguf(c.logits));
  set_tensors(list.take());
}

void FalconH1::add_attention(PartList& list, Attention& w) const {
  const Dim D = list.size.D, NH = list.size.NH, GH = list.size.GH;
  w.head_dim = c.head_dim;
  list.add(w.W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", NH, D, in_gguf(c.attention_in));
  list.add(w.W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", GH, D, in_gguf(c.key, c.attention_in));
  list.add(w.W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", GH, D, in_gguf(c.attention_in));
  if (c.qkv_bias) {
    list.add(w.W_Q.bias, "attn.b_Q", "self_attn.q_proj.bias", "attn_q.bias", NH);
    list.add(w.W_K.bias, "attn.b_K", "self_attn.k_proj.bias", "attn_k.bias", GH, in_gguf(c.key));
    list.add(w.W_V.bias, "attn.b_V", "self_attn.v_proj.bias", "attn_v.bias", GH);
  }
  list.add(w.W_O, "attn.W_O", "self_attn.o_proj.weight", "attn_output.weight", D, NH, in_gguf(c.attention_out));
  if (c.o_bias) list.add(w.W_O.bias, "attn.b_O", "self_attn.o_proj.bias", "", D);  // llama.cpp adds none
}

void FalconH1::add_mlp(PartList& list, GatedMlp& w) const {
  const Dim D = list.size.D, F = list.size.F;
  w.f = c.activation;
  w.gate_scale = c.gate;
  list.add(w.W_gate, "mlp.W_gate", "feed_forward.gate_proj.weight", "ffn_gate.weight", F, D, in_gguf(c.gate));
  list.add(w.W_in, "mlp.W_in", "feed_forward.up_proj.weight", "ffn_up.weight", F, D);
  list.add(w.W_out, "mlp.W_out", "feed_forward.down_proj.weight", "ffn_down.weight", D, F, in_gguf(c.mlp_out));
  if (!c.mlp_bias) return;
  list.add(w.W_gate.bias, "mlp.b_gate", "feed_forward.gate_proj.bias", "ffn_gate.bias", F, in_gguf(c.gate));
  list.add(w.W_in.bias, "mlp.b_in", "feed_forward.up_proj.bias", "ffn_up.bias", F);
  list.add(w.W_out.bias, "mlp.b_out", "feed_forward.down_proj.bias", "ffn_down.bias", D, in_gguf(c.mlp_out));
}

void check_multiplier(const ConfigReader& keys, const char* key, double factor) {
  if (!(std::abs(factor) <= std::numeric_limits<float>::max()) || factor == 0)
    keys.fail(key, "is 0 or more than f32 holds; expected a factor");
}

double read_multiplier(const ConfigReader& keys, const char* key) {
  const double factor = keys.number(key, {}, 1.0);
  check_multiplier(keys, key, factor);
  return factor;
}

// All of them; ones where the configuration has none.
template <size_t N>
std::array<double, N> read_multipliers_of(const ConfigReader& keys, const char* key) {
  std::array<double, N> factors;
  factors.fill(1);
  if (!keys.has(key)) return factors;
  const std::vector<double> found = keys.numbers(key);
  if (found.size() != N) keys.fail(key, "holds " + std::to_string(found.size()) + " factors; expected " + std::to_string(N));
  for (const double factor : found) check_multiplier(keys, key, factor);
  std::copy(found.begin(), found.end(), factors.begin());
  return factors;
}

void read_multipliers(const ConfigReader& keys, FalconH1Config& c) {
  c.embedding_scale = read_multiplier(keys, "embedding_multiplier");
  c.logits = read_multiplier(keys, "lm_head_multiplier");
  c.key = read_multiplier(keys, "key_multiplier");
  c.attention_in = read_multiplier(keys, "attention_in_multiplier");
  c.attention_out = read_multiplier(keys, "attention_out_multiplier");
  c.mixer.in_scale = read_multiplier(keys, "ssm_in_multiplier");
  c.mixer.out_scale = read_multiplier(keys, "ssm_out_multiplier");
  c.mixer.multipliers = read_multipliers_of<5>(keys, "ssm_multipliers");
  const auto [gate, out] = read_multipliers_of<2>(keys, "mlp_multipliers");
  c.gate = gate;
  c.mlp_out = out;
  if (c.qkv_bias && c.attention_in != 1)
    keys.fail("attention_in_multiplier", "is not supported together with attention_bias; expected 1");
}

MambaSpec read_mixer(const ModelConfig& config, const FalconH1Config& c) {
  const ConfigReader& keys = config.keys;
  MambaSpec mixer = read_hybrid_mamba(config, c, {"mamba_d_ssm", 1024});
  if (config.gguf) {
    if (!keys.flag("use_ssm_norm", {}, false)) mixer.norm_place = MambaNorm::none;
    return mixer;
  }
  mixer.out_bias = keys.flag("projectors_bias", {}, false);
  const bool before_gate = keys.flag("mamba_norm_before_gate", {}, true);
  mixer.norm_place = !keys.flag("mamba_rms_norm", {}, false) ? MambaNorm::none
                     : before_gate                           ? MambaNorm::ungated
                                                             : MambaNorm::gated;
  return mixer;
}

std::unique_ptr<Model> read_falcon_h1(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  FalconH1Config c{read_decoder(config, "falcon_h1", {.context_length = 8192, .n_kv_heads = 8, .d_ff = 14336})};
  c.norm.eps = read_eps(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5);
  c.rope = read_rope(config, c, {});
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.qkv_bias = keys.flag("attention_bias", {}, false);
  c.o_bias = c.qkv_bias && !config.gguf;
  c.mlp_bias = keys.flag("mlp_bias", {}, false);
  c.mixer = read_mixer(config, c);
  if (config.gguf) return std::make_unique<FalconH1>(c);
  read_multipliers(keys, c);
  // How the reference computes or draws fresh weights, or which it does not read.
  keys.ignore({"mamba_chunk_size", "num_logits_to_keep", "layer_types", "layers_block_type", "mamba_use_mlp",
               "mlp_expansion_factor", "time_step_floor", "time_step_max", "time_step_min", "time_step_rank"});
  return std::make_unique<FalconH1>(c);
}

Json FalconH1::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  write_hybrid_mamba(keys, c.mixer, format);
  if (format == ConfigFormat::gguf) return keys;
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  keys["mlp_bias"] = c.mlp_bias;
  keys["mamba_d_ssm"] = c.mixer.inner();
  keys["projectors_bias"] = c.mixer.out_bias;
  keys["mamba_rms_norm"] = c.mixer.norm_place != MambaNorm::none;
  keys["mamba_norm_before_gate"] = c.mixer.norm_place == MambaNorm::ungated;
  keys["embedding_multiplier"] = shortest(c.embedding_scale);
  keys["lm_head_multiplier"] = shortest(c.logits);
  keys["key_multiplier"] = shortest(c.key);
  keys["attention_in_multiplier"] = shortest(c.attention_in);
  keys["attention_out_multiplier"] = shortest(c.attention_out);
  keys["ssm_in_multiplier"] = shortest(c.mixer.in_scale);
  keys["ssm_out_multiplier"] = shortest(c.mixer.out_scale);
  keys["ssm_multipliers"] = c.mixer.multipliers;
  keys["mlp_multipliers"] = {c.gate, c.mlp_out};
  return keys;
}

}  // namespace

Family falcon_h1_family() {
  return {.name = "falcon_h1",
          .gguf = "falcon-h1",
          .architecture = "FalconH1ForCausalLM",
          .title = "Falcon-H1",
          .paper = "arXiv:2507.22448",
          .source = "src/engine/model/falcon_h1.cpp",
          .second_source = "src/engine/model/mamba_mixer.cpp",
          .make = read_falcon_h1,
          .gguf_holds_factors = true,
          .has_forms = false,
          .scores_sequences = false};
}

}  // namespace vitrine
