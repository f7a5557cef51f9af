#pragma once
// What the families' configurations have in common.
#include <memory>
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
  const float* rope_divisors = nullptr;  // GGUF's rope_freqs.weight, if the file has one
};

/// "gelu_pytorch_tanh", "gelu_new", "gelu", "silu", "relu" and their other names. Errors: FileError naming the key.
Activation read_activation(const ConfigReader& keys, std::string_view key, std::initializer_list<std::string_view> older,
                           std::optional<std::string> fallback);

/// theta, scaling and layout from rope_theta / rope_parameters / rope_scaling (Hugging Face) or rope.* (GGUF).
/// Errors: FileError for a rope type that is not default, linear or llama3.
RopeSpec read_rope(const ModelConfig& config, int64_t head_dim, RopeLayout layout, double default_theta);

/// A family of [rms | layer]-normed blocks' hook names: the shared order, with the parts a family has.
struct HookParts {
  int64_t n_layers = 0;
  bool positions = false;    // hook_pos_embed
  bool rotary = false;       // attn.hook_rot_q, attn.hook_rot_k
  bool post_norms = false;   // ln1_post, ln2_post
  bool gated = false;        // mlp.hook_pre_linear
  bool norms = true;         // ln1 and ln2
  bool norms_after = false;  // ln1 and ln2 after their sub-layer instead of before
  bool final_norm = true;
};
std::vector<std::string> hook_names_of(const HookParts& parts);

/// Name of layer's line: replaces "{}" by the layer.
std::string at_layer(std::string_view pattern, int64_t layer);

}  // namespace vitrine
