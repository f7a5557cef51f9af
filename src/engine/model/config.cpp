#include "model/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "model/rope_config.h"

namespace vitrine {
namespace {

constexpr const char* kWindowPattern = "attention.sliding_window_pattern";

}  // namespace

Activation read_activation(const ConfigReader& keys, std::string_view key, std::initializer_list<std::string_view> older,
                           std::optional<std::string> fallback) {
  static constexpr std::array<std::pair<std::string_view, Activation>, 13> kNames = {{
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"gelu_new", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh},
      {"gelu_tanh", Activation::gelu_tanh},
      {"gelu", Activation::gelu_exact},
      {"gelu_python", Activation::gelu_exact},
      {"silu", Activation::silu},
      {"swish", Activation::silu},
      {"relu", Activation::relu},
      {"relu2", Activation::relu_squared},
      {"quick_gelu", Activation::quick_gelu},
      {"tanh", Activation::tanh},
      {"sigmoid", Activation::sigmoid},
  }};
  const std::string name = keys.string(key, older, std::move(fallback));
  for (const auto& [known, activation] : kNames)
    if (name == known) return activation;
  std::string list;
  for (const auto& [known, activation] : kNames) list += (list.empty() ? "" : ", ") + std::string(known);
  keys.fail(key, "is not an activation vitrine knows; expected one of " + list);
}

std::vector<int64_t> read_windows(const ModelConfig& config, int64_t n_layers, int64_t if_absent,
                                  const std::function<bool(int64_t layer)>& by_default) {
  const ConfigReader& keys = config.keys;
  const int64_t window = keys.find_positive("sliding_window", {"sliding_window_size", "attention.sliding_window"})
                             .value_or(keys.mentions("sliding_window") ? kNoWindow : if_absent);
  const std::vector<std::string> types = keys.strings("layer_types");
  if (keys.has("layer_types") && static_cast<int64_t>(types.size()) != n_layers)
    keys.fail("layer_types", "has " + std::to_string(types.size()) + " entries; expected one for each of " +
                                 std::to_string(n_layers) + " layers");
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    bool sliding = by_default(layer);
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(layer)];
      if (type != "sliding_attention" && type != "full_attention")
        keys.fail("layer_types", "holds \"" + type + "\"; expected sliding_attention or full_attention");
      sliding = type == "sliding_attention";
      if (sliding && window == kNoWindow) keys.fail("layer_types", "names sliding layers, but sliding_window is missing or null");
    }
    windows.push_back(sliding ? window : kNoWindow);
  }
  return windows;
}

std::vector<int64_t> read_listed_windows(const ModelConfig& config, int64_t n_layers, int64_t if_absent,
                                         const std::function<bool(int64_t layer)>& by_default) {
  if (!config.gguf) return read_windows(config, n_layers, if_absent, by_default);
  const std::vector<bool> pattern = config.keys.flags(kWindowPattern);
  if (!pattern.empty() && static_cast<int64_t>(pattern.size()) != n_layers)
    config.keys.fail(kWindowPattern, "has " + std::to_string(pattern.size()) + " entries; expected one for each of " +
                                         std::to_string(n_layers) + " layers");
  return read_windows(config, n_layers, kNoWindow,
                      [&](int64_t layer) { return pattern.empty() ? by_default(layer) : pattern[static_cast<size_t>(layer)]; });
}

void write_listed_windows(Json& keys, const std::vector<int64_t>& windows, ConfigFormat format) {
  write_windows(keys, windows, format);
  if (!keys.contains("attention.sliding_window")) return;
  for (const int64_t window : windows) keys[kWindowPattern].push_back(window != kNoWindow);
}

std::vector<int64_t> read_qwen_windows(const ModelConfig& config, int64_t n_layers) {
  const ConfigReader& keys = config.keys;
  if (!keys.flag("use_sliding_window", {}, false)) {
    for (const std::string& type : keys.strings("layer_types"))
      if (type != "full_attention") keys.fail("layer_types", "names windows, although use_sliding_window is false or absent");
    keys.ignore({"sliding_window", "max_window_layers", "attention.sliding_window"});
    return std::vector<int64_t>(static_cast<size_t>(n_layers), kNoWindow);
  }
  const int64_t first = keys.count("max_window_layers", {}, 28);
  std::vector<int64_t> windows = read_windows(config, n_layers, 4096, [](int64_t) { return true; });
  for (int64_t layer = 0; layer < std::min(first, n_layers) && !keys.has("layer_types"); ++layer)
    windows[static_cast<size_t>(layer)] = kNoWindow;
  return windows;
}

int64_t read_layers(const ConfigReader& keys, std::string_view key, std::initializer_list<std::string_view> older) {
  constexpr int64_t kMost = 16384;
  const int64_t n_layers = keys.positive(key, older);
  if (n_layers > kMost)
    throw FileError(keys.path(), "asks for " + std::to_string(n_layers) + " layers (" + std::string(key) +
                                     "); expected at most " + std::to_string(kMost) + ". Is the file damaged?");
  return n_layers;
}

int64_t count_further_layers(const ConfigReader& keys) {
  return std::max(keys.count("num_nextn_predict_layers", {}, 0), keys.count("num_mtp_layers", {}, 0));
}

void leave_out_further_layers(const ModelConfig& config, ModelShape& c) {
  const ConfigReader& keys = config.keys;
  if (!config.gguf) {
    count_further_layers(keys);  // num_hidden_layers does not include them
    return;
  }
  const int64_t further = keys.count(kFurtherLayersInGguf, {}, 0);
  if (further >= c.n_layers) keys.fail(kFurtherLayersInGguf, "is as many as block_count; expected fewer");
  c.n_layers -= further;
}

void check_product(const ConfigReader& keys, std::string_view key, const char* formula, int64_t a, int64_t b, int64_t most) {
  if (a > most / b)
    keys.fail(key, "makes " + std::string(formula) + " " + std::to_string(a) + " * " + std::to_string(b) + "; expected at most " +
                       std::to_string(most) + ". Is the file damaged?");
}

double read_eps(const ModelConfig& config, std::string_view key, std::string_view gguf_key, double fallback) {
  const double eps = config.gguf ? config.keys.number(gguf_key) : config.keys.number(key, {}, fallback);
  if (!(eps >= 0))
    config.keys.fail(config.gguf ? gguf_key : key, "must not be negative: a norm takes the root of it plus a mean square");
  return eps;
}

double read_dropout(const ConfigReader& keys, std::string_view key, double fallback) {
  const double share = keys.number(key, {}, fallback);
  if (!(share >= 0 && share < 1)) keys.fail(key, "is not a probability; expected a number from 0 to below 1");
  return share;
}

void check_heads(const ConfigReader& keys, int64_t n_heads, int64_t n_kv_heads) {
  if (n_heads % n_kv_heads != 0)
    keys.fail("num_key_value_heads", "does not divide num_attention_heads (" + std::to_string(n_heads) + ")");
}

void refuse_flags(const ConfigReader& keys, std::initializer_list<std::string_view> flags) {
  for (const std::string_view flag : flags)
    if (keys.flag(flag, {}, false)) keys.fail(flag, "is not supported by this family; expected false");
}

double read_softcap(const ModelConfig& config, const char* key, double absent) {
  const std::optional<double> cap = config.keys.find_number(key);
  if (cap && *cap == 0 && !config.gguf) config.keys.fail(key, "must not be 0: scores are divided by it. Write null for no cap");
  return cap.value_or(config.keys.mentions(key) ? 0 : absent);
}

// The number of key/value heads of those layers that have any.
static int64_t read_heads_of_some(const ConfigReader& keys) {
  constexpr const char* kKey = "attention.head_count_kv";
  int64_t heads = 0;
  for (const int64_t n : keys.counts(kKey)) {
    if (n != 0 && heads != 0 && n != heads) keys.fail(kKey, "differs between layers with attention, which is not supported");
    heads = std::max(heads, n);
  }
  if (heads == 0) keys.fail(kKey, "gives no layer a key/value head; expected a number above 0 in layers with attention");
  return heads;
}

DecoderConfig read_decoder(const ModelConfig& config, const char* family, const DecoderDefaults& absent) {
  const ConfigReader& keys = config.keys;
  DecoderConfig c;
  c.family = family;
  c.d_model = keys.positive("hidden_size", {"embedding_length"});
  c.n_layers = read_layers(keys, "num_hidden_layers", {"block_count"});
  c.n_heads = keys.positive("num_attention_heads", {"attention.head_count"});
  // A family's default stands for silence only; null means as many as query heads, as in transformers.
  std::optional<int64_t> n_kv_heads = absent.n_kv_heads;
  if (n_kv_heads && (*n_kv_heads == 0 || config.gguf || keys.mentions("num_key_value_heads"))) n_kv_heads = c.n_heads;
  c.n_kv_heads = config.gguf && absent.only_some_attend
                     ? read_heads_of_some(keys)
                     : keys.positive("num_key_value_heads", {"attention.head_count_kv"}, n_kv_heads);
  check_heads(keys, c.n_heads, c.n_kv_heads);
  const std::initializer_list<std::string_view> in_gguf = {"attention.key_length", "attention.value_length"};
  if (absent.head_dim == 0) {
    c.head_dim = 1;  // until the family reads it
  } else if (absent.head_dim) {
    c.head_dim = keys.positive("head_dim", in_gguf, absent.head_dim);
  } else {
    const auto head_dim = keys.find_positive("head_dim", in_gguf);
    if (!head_dim && c.d_model % c.n_heads != 0)
      keys.fail("num_attention_heads",
                "does not divide hidden_size (" + std::to_string(c.d_model) + "), and there is no head_dim");
    c.head_dim = head_dim.value_or(c.d_model / c.n_heads);
  }
  check_product(keys, "num_attention_heads", "n_heads * head_dim", c.n_heads, c.head_dim, kMostInHeads);
  check_product(keys, "hidden_size", "d_model * n_layers", c.d_model, c.n_layers, kMostInStream);
  // Mixtures without a dense layer need not say it.
  const auto d_ff = config.gguf ? keys.find_positive("expert_feed_forward_length") : absent.d_ff;
  c.d_ff = keys.positive("intermediate_size", {"feed_forward_length"}, d_ff);
  c.vocab_size = keys.positive("vocab_size");
  c.context_length = keys.positive("max_position_embeddings", {"context_length"}, absent.context_length);
  c.attn_dropout = read_dropout(keys, "attention_dropout", 0.0);
  const bool layer_norm = keys.has("attention.layer_norm_epsilon");  // of a GGUF file
  c.norm = {.eps = read_eps(config, "rms_norm_eps",
                            layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-6)};
  c.tied = keys.flag("tie_word_embeddings", {}, absent.tied);
  return c;
}

ExpertSpec read_experts(const ConfigReader& keys, std::string_view d_ff_key, std::string_view gguf_d_ff_key,
                        std::optional<int64_t> d_ff_fallback, std::optional<int64_t> layers) {
  constexpr int64_t kMost = 4096, kMostInAll = 1 << 17;  // they are made before any weight is looked for
  ExpertSpec experts;
  experts.count = keys.positive("num_local_experts", {"num_experts", "n_routed_experts", "moe_num_experts", "expert_count"});
  experts.per_row = keys.positive("num_experts_per_tok", {"experts_per_token", "top_k_experts", "moe_k", "expert_used_count"});
  experts.d_ff = keys.positive(d_ff_key, {gguf_d_ff_key}, d_ff_fallback);
  if (experts.count > kMost)
    keys.fail("num_local_experts",
              "is more than the " + std::to_string(kMost) + " experts a layer may have; is the file damaged?");
  const int64_t n_layers = layers ? *layers : read_layers(keys, "num_hidden_layers", {"block_count"});
  check_product(keys, "num_local_experts", "n_experts * n_layers", experts.count, n_layers, kMostInAll);
  if (experts.per_row > experts.count)
    keys.fail("num_experts_per_tok", "is more than the " + std::to_string(experts.count) + " experts there are");
  return experts;
}

std::vector<bool> read_dense_layers(const ModelConfig& config, int64_t n_layers) {
  std::vector<bool> dense(static_cast<size_t>(n_layers), false);
  if (config.gguf) return dense;
  const int64_t step = config.keys.positive("decoder_sparse_step", {}, 1);
  for (int64_t layer = 0; layer < n_layers; ++layer) dense[static_cast<size_t>(layer)] = (layer + 1) % step != 0;
  for (const int64_t layer : config.keys.counts("mlp_only_layers"))
    if (layer < n_layers) dense[static_cast<size_t>(layer)] = true;
  return dense;
}

void write_dense_layers(Json& keys, const std::vector<bool>& dense) {
  keys["decoder_sparse_step"] = 1;
  keys["mlp_only_layers"] = Json::array();
  for (size_t layer = 0; layer < dense.size(); ++layer)
    if (dense[layer]) keys["mlp_only_layers"].push_back(layer);
}

int64_t gguf_gating(const ExpertSpec& experts) { return !experts.softmax_over_all ? 3 : experts.sigmoid ? 2 : 1; }

double read_router_loss(const ConfigReader& keys, double absent) {
  const double coefficient = keys.number("router_aux_loss_coef", {}, absent);
  if (!(coefficient >= 0)) keys.fail("router_aux_loss_coef", "is below 0; expected the weight of a loss");
  return keys.flag("output_router_logits", {}, false) ? coefficient : 0;
}

void check_groups(const ConfigReader& keys, const ExpertSpec& experts) {
  if (experts.count % experts.groups != 0)
    keys.fail("n_group", "is " + std::to_string(experts.groups) + ", which does not divide the " + std::to_string(experts.count) +
                             " experts");
  const int64_t each = experts.count / experts.groups;
  if (each < experts.group_best)
    keys.fail("n_group", "leaves one expert for a group; expected two or more, which a group is judged by");
  if (experts.groups_used > experts.groups)
    keys.fail("topk_group", "is more than the " + std::to_string(experts.groups) + " groups there are");
  if (experts.per_row > each * experts.groups_used)
    keys.fail("num_experts_per_tok", "is more than the " + std::to_string(each * experts.groups_used) +
                                         " experts of the groups that are used (topk_group)");
}

void read_grouped_router(const ModelConfig& config, ExpertSpec& experts) {
  const ConfigReader& keys = config.keys;
  experts.sigmoid = true;
  experts.sum_eps = 1e-20;
  experts.group_best = 2;
  experts.groups = keys.positive("n_group", {"expert_group_count"}, config.gguf ? 1 : experts.groups);
  experts.groups_used = keys.positive("topk_group", {"expert_group_used_count"}, config.gguf ? 1 : experts.groups_used);
  experts.renormalize = keys.flag("norm_topk_prob", {"expert_weights_norm"}, !config.gguf);
  experts.scale = keys.number("routed_scaling_factor", {"expert_weights_scale"}, config.gguf ? 1.0 : experts.scale);
  check_groups(keys, experts);
}

void write_grouped_router(Json& keys, const ExpertSpec& experts, ConfigFormat format) {
  if (format == ConfigFormat::gguf) {
    write_gguf_experts(keys, experts);
    keys["expert_weights_norm"] = experts.renormalize;
    keys["expert_weights_scale"] = experts.scale;
    keys[kGatingInGguf] = gguf_gating(experts);
    keys["expert_group_count"] = experts.groups;
    keys["expert_group_used_count"] = experts.groups_used;
    return;
  }
  keys["n_routed_experts"] = experts.count;
  keys["num_experts_per_tok"] = experts.per_row;
  keys["moe_intermediate_size"] = experts.d_ff;
  keys["n_group"] = experts.groups;
  keys["topk_group"] = experts.groups_used;
  keys["norm_topk_prob"] = experts.renormalize;
  keys["routed_scaling_factor"] = shortest(experts.scale);
}

void write_gguf_experts(Json& keys, const ExpertSpec& experts) {
  keys["expert_count"] = experts.count;
  keys["expert_used_count"] = experts.per_row;
  keys["expert_feed_forward_length"] = experts.d_ff;
}

double shortest(double x) {
  if (static_cast<double>(static_cast<float>(x)) != x) return x;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(x)).ptr;
  double value = x;
  std::from_chars(text, end, value);
  return value;
}

const char* activation_key(Activation activation) {
  switch (activation) {
    case Activation::gelu_tanh: return "gelu_pytorch_tanh";
    case Activation::gelu_exact: return "gelu";
    case Activation::silu: return "silu";
    case Activation::relu: return "relu";
    case Activation::sigmoid: return "sigmoid";
    case Activation::relu_squared: return "relu2";
    case Activation::quick_gelu: return "quick_gelu";
    case Activation::tanh: return "tanh";
    case Activation::none: break;
  }
  return "linear";
}

Json whole_or_real(double x) { return x == std::floor(x) && std::abs(x) < 0x1p53 ? Json(static_cast<int64_t>(x)) : Json(x); }

Json write_gguf_sizes(const ModelShape& shape, const char* eps_key, double eps) {
  return {{"embedding_length", shape.d_model},
          {"block_count", shape.n_layers},
          {"attention.head_count", shape.n_heads},
          {"feed_forward_length", shape.d_ff},
          {"vocab_size", shape.vocab_size},
          {"context_length", shape.context_length},
          {eps_key, eps}};
}

Json write_decoder(const DecoderConfig& c, ConfigFormat format) {
  if (format == ConfigFormat::gguf) {
    Json keys = write_gguf_sizes(c, "attention.layer_norm_rms_epsilon", c.norm.eps);
    keys["attention.head_count_kv"] = c.n_kv_heads;
    keys["attention.key_length"] = keys["attention.value_length"] = c.head_dim;
    write_rope(keys, c.rope, format);
    return keys;
  }
  Json keys = {{"model_type", c.family},
               {"hidden_size", c.d_model},
               {"num_hidden_layers", c.n_layers},
               {"num_attention_heads", c.n_heads},
               {"num_key_value_heads", c.n_kv_heads},
               {"head_dim", c.head_dim},
               {"intermediate_size", c.d_ff},
               {"vocab_size", c.vocab_size},
               {"max_position_embeddings", c.context_length},
               {"rms_norm_eps", shortest(c.norm.eps)},
               {"attention_dropout", c.attn_dropout},
               {"tie_word_embeddings", c.tied}};
  write_rope(keys, c.rope, format);
  return keys;
}

void write_windows(Json& keys, const std::vector<int64_t>& windows, ConfigFormat format) {
  const auto window = std::find_if(windows.begin(), windows.end(), [](int64_t w) { return w != kNoWindow; });
  if (format == ConfigFormat::gguf) {
    if (window != windows.end()) keys["attention.sliding_window"] = *window;
    return;
  }
  keys["sliding_window"] = window != windows.end() ? Json(*window) : Json(nullptr);
  for (const int64_t w : windows) keys["layer_types"].push_back(w == kNoWindow ? "full_attention" : "sliding_attention");
}

}  // namespace vitrine
