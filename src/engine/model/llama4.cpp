// Llama 4 (text). Grouped-query attention in two kinds of layers: with RoPE on neighboring components, and keys of the query's
// own chunk alone; or without positions, with all keys and queries that grow with their position. After RoPE queries and keys are
// divided by their root mean square. Layers have one SwiGLU, or a mixture of experts beside a shared one; the sigmoid of a
// router's logit multiplies what an expert reads. RMSNorm before each sub-layer. Meta,
// https://ai.meta.com/blog/llama-4-multimodal-intelligence; layers without RoPE: Yang et al., arXiv:2501.18795. MobileLLM-R1 is a
// configuration of it without experts and chunks. T rows of the step (sequences one after the other), N n_heads, G n_kv_heads, H
// head_dim, D d_model, E experts, F d_ff (of layers without experts), V vocab_size.
#include <algorithm>
#include <optional>

#include "model/decoder.h"
#include "model/expert_tensors.h"
#include "model/registry.h"
#include "model/rope_config.h"
#include "ops/attention.h"
#include "ops/attention_temperature.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

constexpr int64_t kUsualChunk = 8192, kUsualSteps = 8192;  // those of published models, which llama.cpp takes
constexpr double kUsualTemperature = 0.1;                  // likewise
constexpr int64_t kWithoutNorms = 128;                     // experts of the model without norms of queries and keys

struct Llama4Config : DecoderConfig {
  std::vector<bool> rotates = {};                                                                // of each layer: RoPE acts
  std::vector<bool> mixes = {};                                                                  // of each layer: it has experts
  bool qk_norm = true;                                                                           // in layers that rotate
  std::optional<TemperatureSpec> temperature = TemperatureSpec{kUsualSteps, kUsualTemperature};  // in those that do not
  ExpertSpec experts = {};
};

struct Llama4Block {
  RmsNorm ln1{{"ln1", "input_layernorm", "attn_norm"}};              // [D]
  Attention attn;                                                    // W_Q, W_K, W_V, W_O
  RmsNorm q_norm{{"attn.rot_q_norm"}}, k_norm{{"attn.rot_k_norm"}};  // [H], without weights
  RmsNorm ln2{{"ln2", "post_attention_layernorm", "ffn_norm"}};      // [D]
  GatedMlp mlp;                                                      // of a layer without experts: W_gate, W_in, W_out
  ExpertMlp experts;                                                 // of one with E experts
  SharedExpert shared;                                               // beside them
};

class Llama4 final : public RopeDecoder {
 public:
  explicit Llama4(const Llama4Config& c);
  std::span<const Expert> experts(int64_t layer) const override { return blocks[static_cast<size_t>(layer)].experts.experts; }
  Json config(ConfigFormat format) const override;

 private:
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const override;
  AttentionSpec attention_spec(int64_t layer) const override;

  const Llama4Config c;
  std::vector<Llama4Block> blocks;
  std::vector<float> ones_;  // the weights of norms that have none
};

Tensor Llama4::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Llama4Block& w = blocks[static_cast<size_t>(layer)];
  const bool rotates = c.rotates[static_cast<size_t>(layer)], mixes = c.mixes[static_cast<size_t>(layer)];
  const auto scope = ctx.scope("blocks", layer);      // every name below becomes blocks.<layer>.<name>
  auto frame = ctx.frame(resid_pre);                  // this block's scratch and its input end here
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = w.ln1(ctx, resid_pre);  // [T, D] #norm
  auto [q, k, v] = w.attn.qkv(ctx, x);     // [T, N, H], [T, G, H] twice; hooks attn.hook_q, _k, _v #attention
  if (rotates) {                           // #rope
    q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, c.rope));  // #rope
    k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, c.rope));  // #rope
  } else if (c.temperature) {
    q = attention_temperature(ctx, "attn", q, step, *c.temperature);  // [T, N, H] #attention
  }
  if (rotates && c.qk_norm) q = w.q_norm(ctx, q);                                        // [T, N, H] #attention
  if (rotates && c.qk_norm) k = w.k_norm(ctx, k);                                        // [T, G, H] #attention
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, attention_spec(layer));  // [T, N, H] #attention
  const Tensor attn_out = ctx.hook("hook_attn_out", w.attn.out(ctx, z));                 // [T, D] #attention
  const Tensor resid_mid = ctx.hook("hook_resid_mid", add(ctx, resid_pre, attn_out));    // [T, D] #residual

  const Tensor y = w.ln2(ctx, resid_mid);  // [T, D] #norm
  // Expert e of the best few reads u = σ(y W_routerᵀ)_e y and gives SwiGLU(u); the shared one reads y. #mlp
  Tensor update = mixes ? w.experts(ctx, y) : w.mlp(ctx, y);                     // [T, D] #mlp
  if (mixes) update = add(ctx, update, w.shared(ctx, y));                        // [T, D] #mlp
  const Tensor mlp_out = ctx.hook("hook_mlp_out", update);                       // [T, D] #mlp
  return frame.keep(ctx.hook("hook_resid_post", add(ctx, resid_mid, mlp_out)));  // [T, D] #residual
}

AttentionSpec Llama4::attention_spec(int64_t layer) const {
  AttentionSpec spec = RopeDecoder::attention_spec(layer);
  spec.chunked = spec.window != kNoWindow;  // #window
  return spec;
}

Llama4::Llama4(const Llama4Config& config) : RopeDecoder(config), c(config), blocks(static_cast<size_t>(c.n_layers)) {
  const ExpertNames names{.router = "feed_forward.router", .experts = "feed_forward.experts", .by_columns = true};
  ones_.assign(static_cast<size_t>(c.head_dim), 1.0f);
  PartList list = begin_tensors();
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    Llama4Block& w = blocks[static_cast<size_t>(layer)];
    list.add_layer(w.ln1, w.attn, w.ln2);
    for (RmsNorm* norm : {&w.q_norm, &w.k_norm}) {
      norm->w = {.name = "ones", .data = ones_.data(), .size = c.head_dim, .grad = {}};
      norm->spec = c.norm;
    }
    if (!c.mixes[static_cast<size_t>(layer)]) {
      list.add(w.mlp, {.gate = "feed_forward.gate_proj", .in = "feed_forward.up_proj", .out = "feed_forward.down_proj"});
      continue;
    }
    add_experts(list, w.experts, c.experts, true, names);
    add_shared(list, w.shared, c.experts.d_ff, "feed_forward.shared_expert");
  }
  end_tensors(list);
}

// The layers of moe_layers, or else every interleave_moe_layer_step-th.
std::vector<bool> read_mixing_layers(const ModelConfig& config, int64_t n_layers) {
  const ConfigReader& keys = config.keys;
  std::vector<bool> mixes(static_cast<size_t>(n_layers), false);
  if (keys.has("moe_layers")) {
    for (const int64_t layer : keys.counts("moe_layers"))
      if (layer < n_layers) mixes[static_cast<size_t>(layer)] = true;
    keys.ignore({"interleave_moe_layer_step"});
    return mixes;
  }
  const auto absent = config.gguf ? std::optional<int64_t>() : 1;
  const int64_t step = keys.count("interleave_moe_layer_step", {}, absent);
  if (step == 0 && !config.gguf) keys.fail("interleave_moe_layer_step", "is 0; expected moe_layers with it, or at least 1");
  for (int64_t layer = 0; layer < n_layers && step > 0; ++layer) mixes[static_cast<size_t>(layer)] = (layer + 1) % step == 0;
  return mixes;
}

// The chunk of each layer: of those that layer_types calls so, or else of those that rotate.
std::vector<int64_t> read_chunks(const ModelConfig& config, const Llama4Config& c) {
  const ConfigReader& keys = config.keys;
  const bool none = keys.mentions("attention_chunk_size") && !keys.has("attention_chunk_size");
  const int64_t chunk = none ? kNoWindow : keys.positive("attention_chunk_size", {}, kUsualChunk);
  const std::vector<std::string> types = keys.strings("layer_types");
  if (keys.has("layer_types") && static_cast<int64_t>(types.size()) != c.n_layers)
    keys.fail("layer_types", "has " + std::to_string(types.size()) + " entries; expected one for each of " +
                                 std::to_string(c.n_layers) + " layers");
  std::vector<int64_t> chunks;
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    if (!types.empty() && types[at] != "chunked_attention" && types[at] != "full_attention")
      keys.fail("layer_types", "holds \"" + types[at] + "\"; expected chunked_attention or full_attention");
    const bool chunked = types.empty() ? c.rotates[at] : types[at] == "chunked_attention";
    if (chunked && none && !types.empty()) keys.fail("layer_types", "names chunked layers, but attention_chunk_size is null");
    chunks.push_back(chunked ? chunk : kNoWindow);
  }
  return chunks;
}

// llama.cpp's chunks have 8192 positions whatever a file says, or there are none where it says 0.
std::vector<int64_t> read_gguf_chunks(const ConfigReader& keys, const Llama4Config& c) {
  constexpr const char *kWindow = "attention.sliding_window", *kPattern = "attention.sliding_window_pattern";
  const int64_t chunk = keys.positive("vitrine.attention_chunk_size", {}, kUsualChunk),
                window = keys.find_count(kWindow).value_or(chunk);
  const std::vector<bool> pattern = keys.flags(kPattern);
  if (window != 0 && window != chunk)
    keys.fail(kWindow, "is " + std::to_string(window) + "; expected 0 or the chunk of " + std::to_string(chunk) + " positions");
  if (!pattern.empty() && static_cast<int64_t>(pattern.size()) != c.n_layers)
    keys.fail(kPattern, "has " + std::to_string(pattern.size()) + " entries; expected one for each of " +
                            std::to_string(c.n_layers) + " layers");
  std::vector<int64_t> chunks;
  for (size_t layer = 0; layer < c.rotates.size(); ++layer)
    chunks.push_back(window > 0 && (pattern.empty() ? (layer + 1) % 4 != 0 : pattern[layer]) ? chunk : kNoWindow);
  return chunks;
}

// Of queries in layers that do not rotate; llama.cpp has the usual one where there are chunks, and none where there are not.
std::optional<TemperatureSpec> read_temperature(const ModelConfig& config, bool chunks) {
  const ConfigReader& keys = config.keys;
  const bool usual = !config.gguf || chunks;
  const TemperatureSpec spec{
      .floor_scale = keys.positive("floor_scale", {"vitrine.attention_floor_scale"}, kUsualSteps),
      .scale = keys.number("attn_scale", {"vitrine.attention_temperature"}, usual ? kUsualTemperature : 0.0)};
  if (!keys.find_flag_or_count("attn_temperature_tuning").value_or(true) || spec.scale == 0) return {};
  return spec;
}

std::unique_ptr<Model> read_llama4_text(const ModelConfig& config) {
  const ConfigReader& keys = config.keys;
  Llama4Config c{read_decoder(config, "llama4_text", {.context_length = 131072, .n_kv_heads = 8, .head_dim = 128, .d_ff = 8192})};
  if (!config.gguf) c.norm.eps = read_eps(config, "rms_norm_eps", "", 1e-5);
  c.rope = read_rope(config, c, {.theta = 5e5, .pairs = true});
  c.activation = read_activation(keys, "hidden_act", {}, "silu");
  c.qkv_bias = c.o_bias = keys.flag("attention_bias", {}, false);
  // llama.cpp has all layers rotate where there are no chunks.
  c.rotates = read_rotating_layers(config, c.n_layers, keys.find_count("attention.sliding_window") == 0);
  c.windows = config.gguf ? read_gguf_chunks(keys, c) : read_chunks(config, c);
  c.temperature = read_temperature(config, c.has_windows());
  c.mixes = read_mixing_layers(config, c.n_layers);
  if (std::find(c.mixes.begin(), c.mixes.end(), true) != c.mixes.end()) {
    const auto silent = config.gguf ? std::nullopt : std::optional<int64_t>(8192);
    c.experts = read_experts(keys, "intermediate_size", "expert_feed_forward_length", silent);
    c.experts.sigmoid = c.experts.weighs_inputs = true;
    c.experts.renormalize = false;
    c.experts.activation = c.activation;
  }
  // llama.cpp knows the model without these norms by its number of experts.
  c.qk_norm =
      keys.flag(config.gguf ? "vitrine.use_qk_norm" : "use_qk_norm", {}, !config.gguf || c.experts.count != kWithoutNorms);
  if (!config.gguf) c.d_ff = keys.positive("intermediate_size_mlp", {}, 16384);
  keys.ignore({"num_local_experts", "num_experts_per_tok", "expert_count", "expert_used_count", "expert_feed_forward_length",
               "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "for_llm_compressor"});
  return std::make_unique<Llama4>(c);
}

// Which layers have experts, as a step where there is one: 0 for none, else the place of the first.
int64_t mixture_step(const std::vector<bool>& mixes) {
  const auto first = std::find(mixes.begin(), mixes.end(), true);
  return first == mixes.end() ? 0 : first - mixes.begin() + 1;
}

// What llama.cpp takes for granted is written only where it is not so, under keys of our own.
void write_gguf(Json& keys, const Llama4Config& c) {
  if (c.experts.count > 0) write_gguf_experts(keys, c.experts);
  keys["interleave_moe_layer_step"] = mixture_step(c.mixes);
  bool usual = true;
  std::vector<bool> chunked;
  for (size_t layer = 0; layer < c.rotates.size(); ++layer) {
    chunked.push_back(c.windows[layer] != kNoWindow);
    usual = usual && chunked[layer] == ((layer + 1) % 4 != 0);
  }
  const bool chunks = c.has_windows();
  write_rotating_layers(keys, c.rotates, ConfigFormat::gguf, !chunks);
  if (!chunks) keys["attention.sliding_window"] = 0;
  if (chunks && !usual) keys["attention.sliding_window_pattern"] = chunked;
  if (const int64_t chunk = *std::max_element(c.windows.begin(), c.windows.end()); chunks && chunk != kUsualChunk)
    keys["vitrine.attention_chunk_size"] = chunk;
  const double scale = c.temperature ? c.temperature->scale : 0;
  if (scale != (chunks ? kUsualTemperature : 0)) keys["vitrine.attention_temperature"] = scale;
  if (c.temperature && c.temperature->floor_scale != kUsualSteps)
    keys["vitrine.attention_floor_scale"] = c.temperature->floor_scale;
  if (c.qk_norm != (c.experts.count != kWithoutNorms)) keys["vitrine.use_qk_norm"] = c.qk_norm;
}

Json Llama4::config(ConfigFormat format) const {
  Json keys = write_decoder(c, format);
  if (format == ConfigFormat::gguf) {
    write_gguf(keys, c);
    return keys;
  }
  keys["intermediate_size_mlp"] = c.d_ff;
  keys["intermediate_size"] = c.experts.count > 0 ? c.experts.d_ff : c.d_ff;
  keys["hidden_act"] = activation_key(c.activation);
  keys["attention_bias"] = c.qkv_bias;
  write_rotating_layers(keys, c.rotates, format);
  keys["attention_chunk_size"] = c.has_windows() ? Json(*std::max_element(c.windows.begin(), c.windows.end())) : Json(nullptr);
  for (const int64_t window : c.windows)
    keys["layer_types"].push_back(window == kNoWindow ? "full_attention" : "chunked_attention");
  keys["use_qk_norm"] = c.qk_norm;
  keys["attn_temperature_tuning"] = c.temperature.has_value();
  keys["floor_scale"] = c.temperature ? c.temperature->floor_scale : kUsualSteps;
  keys["attn_scale"] = shortest(c.temperature ? c.temperature->scale : kUsualTemperature);
  keys["interleave_moe_layer_step"] = mixture_step(c.mixes);
  keys["moe_layers"] = Json::array();
  for (int64_t layer = 0; layer < c.n_layers; ++layer)
    if (c.mixes[static_cast<size_t>(layer)]) keys["moe_layers"].push_back(layer);
  keys["num_local_experts"] = c.experts.count;
  keys["num_experts_per_tok"] = c.experts.per_row;
  return keys;
}

}  // namespace

Family llama4_text_family() {
  return {.name = "llama4_text",
          .gguf = "llama4",
          .architecture = "Llama4ForCausalLM",
          .title = "Llama 4",
          .paper = "https://ai.meta.com/blog/llama-4-multimodal-intelligence",
          .source = "src/engine/model/llama4.cpp",
          .make = read_llama4_text,
          .has_forms = false,
          .scores_sequences = false};
}

}  // namespace vitrine
