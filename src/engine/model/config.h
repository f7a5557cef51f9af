#pragma once
// What the families' configurations have in common.
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/config_reader.h"
#include "model/model.h"

namespace vitrine {

/// A configuration from either kind of file: config.json, or a GGUF's metadata with the architecture's prefix taken off.
/// Families read "hidden_size" with the older name "embedding_length", and one text serves both.
struct ModelConfig {
  ConfigReader keys;
  bool gguf = false;
  const float* rope_divisors = nullptr;                     // GGUF's rope_freqs.weight, if the file has one
  const float *rope_short = nullptr, *rope_long = nullptr;  // its rope_factors_short.weight and rope_factors_long.weight
  bool stacked_experts = false;                             // of a Hugging Face directory: a tensor holds a matrix of all experts
  bool rewards = false;                                     // it is opened as a reward model
};

/// What the configurations of decoders with RMSNorm and RoPE share.
struct DecoderConfig : ModelShape {
  NormSpec norm;
  RopeSpec rope;
  std::vector<std::shared_ptr<const std::vector<float>>> rope_divisors = {};  // of a config.json, which RopeSpecs point to
  Activation activation = Activation::none;
  double attn_dropout = 0;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  std::vector<int64_t> windows = {};  // of each layer; kNoWindow: global. Empty: every layer is global

  void set_window_of_all(int64_t window) { windows.assign(static_cast<size_t>(n_layers), window); }
  int64_t window_of_all() const { return windows.empty() ? kNoWindow : windows.front(); }
  bool has_windows() const {
    return std::any_of(windows.begin(), windows.end(), [](int64_t window) { return window != kNoWindow; });
  }
};

/// What keys mean that a config.json leaves out; where a family has no default, nothing.
struct DecoderDefaults {
  int64_t context_length = 0;
  std::optional<int64_t> n_kv_heads = {};  // 0: as many as n_heads
  std::optional<int64_t> head_dim = {};    // nothing: d_model / n_heads; 0: the family has keys of its own for it
  bool tied = false;
  std::optional<int64_t> d_ff = {};  // of a config.json
  bool only_some_attend = false;     // GGUF's attention.head_count_kv may be a list, with 0 for layers without attention
};

/// The sizes in GGUF's words, and what norms add under its key.
Json write_gguf_sizes(const ModelShape& shape, const char* eps_key, double eps);

/// All but the activation and RoPE, which each family reads in its own way. Errors: FileError naming the key.
DecoderConfig read_decoder(const ModelConfig& config, const char* family, const DecoderDefaults& absent);
/// The keys of a DecoderConfig but the activation, whose names differ, and the windows.
Json write_decoder(const DecoderConfig& c, ConfigFormat format);

/// "gelu_pytorch_tanh", "gelu_new", "gelu", "silu", "relu" and their other names. Errors: FileError naming the key.
Activation read_activation(const ConfigReader& keys, std::string_view key, std::initializer_list<std::string_view> older,
                           std::optional<std::string> fallback);
/// The name that transformers knows it by.
const char* activation_key(Activation activation);

/// Each layer's window: sliding_window (null: none; absent: `if_absent`) on the layers that layer_types names, or, where the
/// configuration has no such list, on those that `by_default` names. Errors: FileError for a wrong list.
std::vector<int64_t> read_windows(const ModelConfig& config, int64_t n_layers, int64_t if_absent,
                                  const std::function<bool(int64_t layer)>& by_default);
/// The same where GGUF's attention.sliding_window_pattern is a list of true and false.
std::vector<int64_t> read_listed_windows(const ModelConfig& config, int64_t n_layers, int64_t if_absent,
                                         const std::function<bool(int64_t layer)>& by_default);
/// write_windows, and that list.
void write_listed_windows(Json& keys, const std::vector<int64_t>& windows, ConfigFormat format);
/// Qwen's: windows act only where use_sliding_window says so, from layer max_window_layers on if there is no list of layers.
std::vector<int64_t> read_qwen_windows(const ModelConfig& config, int64_t n_layers);
/// sliding_window and layer_types, or GGUF's attention.sliding_window.
void write_windows(Json& keys, const std::vector<int64_t>& windows, ConfigFormat format);

/// The number of layers. Errors: FileError if it is missing or absurd: what exists per layer is allocated before any weight
/// is looked for.
int64_t read_layers(const ConfigReader& keys, std::string_view key, std::initializer_list<std::string_view> older = {});

/// The key of GGUF, whose block_count includes them.
constexpr const char* kFurtherLayersInGguf = "nextn_predict_layers";
/// Layers after those of the model in a Hugging Face file, which predict the tokens after the next one (num_nextn_predict_layers,
/// num_mtp_layers).
int64_t count_further_layers(const ConfigReader& keys);
/// Takes them off n_layers where that includes them; neither transformers nor vitrine runs them.
/// Errors: FileError if no layer is left.
void leave_out_further_layers(const ModelConfig& config, ModelShape& c);

/// What sizes that may each be right make together. Errors: FileError naming the key and the product, if that is above `most`.
void check_product(const ConfigReader& keys, std::string_view key, const char* formula, int64_t a, int64_t b, int64_t most);
constexpr int64_t kMostInHeads = 1 << 24;   // components of all heads of a layer
constexpr int64_t kMostInStream = 1 << 30;  // numbers of a token in all layers

/// What a norm adds to the mean square; `fallback` is the reference's for a config.json without it, and GGUF files must say
/// it. Errors: FileError if it is negative.
double read_eps(const ModelConfig& config, std::string_view key, std::string_view gguf_key, double fallback);

/// The probability with which dropout zeroes an element. Errors: FileError if it is outside [0, 1).
double read_dropout(const ConfigReader& keys, std::string_view key, double fallback);

/// The cap of a soft-capped score: a config.json that says null has none, one that says nothing has `absent`.
/// Errors: FileError for 0 in a config.json.
double read_softcap(const ModelConfig& config, const char* key, double absent);

/// Experts' number, choices and sizes from num_experts / num_local_experts, num_experts_per_tok and `d_ff_key`, or GGUF's
/// expert_*. layers: their number, where no key has it. Errors: FileError for more choices than experts, or absurd numbers of
/// them.
ExpertSpec read_experts(const ConfigReader& keys, std::string_view d_ff_key, std::string_view gguf_d_ff_key,
                        std::optional<int64_t> d_ff_fallback = {}, std::optional<int64_t> layers = {});
/// Which layers have one MLP for all rows instead: all but every decoder_sparse_step-th, and those of mlp_only_layers. GGUF has
/// no key for them.
std::vector<bool> read_dense_layers(const ModelConfig& config, int64_t n_layers);
void write_dense_layers(Json& keys, const std::vector<bool>& dense);
/// GGUF's key for how experts are scored, and its numbers: 1 a softmax, 2 sigmoids, 3 a softmax over the chosen.
constexpr const char* kGatingInGguf = "expert_gating_func";
int64_t gguf_gating(const ExpertSpec& experts);
/// The coefficient of the load-balancing loss if output_router_logits says that training has one; else 0.
double read_router_loss(const ConfigReader& keys, double absent);
/// How DeepSeek V3 and its kin choose experts and weigh them: sigmoids, n_group groups of which topk_group are used,
/// norm_topk_prob, routed_scaling_factor. experts.groups, groups_used and scale are those of a config.json that is silent.
/// Errors: FileError for groups that cannot be.
void read_grouped_router(const ModelConfig& config, ExpertSpec& experts);
/// The same keys, and n_routed_experts, num_experts_per_tok and moe_intermediate_size.
void write_grouped_router(Json& keys, const ExpertSpec& experts, ConfigFormat format);
/// Errors: FileError if the groups do not divide the experts, hold too few of them, or are fewer than those that are used.
void check_groups(const ConfigReader& keys, const ExpertSpec& experts);
/// GGUF's keys for them.
void write_gguf_experts(Json& keys, const ExpertSpec& experts);

/// n_heads must be a multiple of n_kv_heads.
void check_heads(const ConfigReader& keys, int64_t n_heads, int64_t n_kv_heads);

/// Errors: FileError if one of these flags is there and true: it would change values and no weight table knows it.
void refuse_flags(const ConfigReader& keys, std::initializer_list<std::string_view> flags);

/// A number that was f32 as people write it: 1e-05 and not 9.999999747378752e-06. Any other as it is.
double shortest(double x);
/// A whole number without a decimal point.
Json whole_or_real(double x);

}  // namespace vitrine
