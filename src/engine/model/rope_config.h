#pragma once
// RoPE as configurations state it: one reader and one writer for all families.
#include <optional>
#include <vector>

#include "model/config.h"

namespace vitrine {

/// What a family takes where its configuration is silent, as transformers does.
struct RopeDefaults {
  double theta = 10000;
  Json settings = nullptr;           // rope_parameters of a config.json that has none
  std::optional<double> share = {};  // partial_rotary_factor; nothing: heads rotate as a whole, and no config.json may differ
  bool pairs = false;                // neighboring components rotate together
  bool pairs_in_gguf = false;        // there alone: W_Q and W_K are ordered for it
  bool only_longrope = false;        // no other scaling, and "su" and "yarn" are older names of it
  bool mscales = false;              // longrope's factor of cosines and sines is short_mscale, and long_mscale the same
  int64_t original_context = 0;      // original_max_position_embeddings, of a family whose config.json always has it

  // Of a family with settings for each type of layer:
  std::optional<double> local_theta = {};  // of layers with a window; nothing: theta
  const char* local_theta_key = nullptr;   // in a config.json without rope_parameters
  bool older_keys = true;                  // rope_theta and rope_scaling are read
};

/// theta, scaling and layout from rope_theta and rope_parameters or rope_scaling (Hugging Face) or rope.* (GGUF), for heads of
/// `model`, whose context_length is known. Where transformers looks at a key, so does this: yarn's truncate, and
/// original_max_position_embeddings first in the configuration itself. The dynamic rule is read as none: it acts beyond
/// max_position_embeddings alone, which no prompt here exceeds. LongRoPE's divisors go into model.rope_divisors.
/// Errors: FileError naming the key, for an unknown type, for settings that mean nothing, and for those that transformers
/// ignores.
RopeSpec read_rope(const ModelConfig& config, DecoderConfig& model, const RopeDefaults& absent);

/// The same where layers with a window (local) have settings of their own: rope_parameters holds an object for each type.
struct LayerRopes {
  RopeSpec global, local;
};
LayerRopes read_layer_ropes(const ModelConfig& config, DecoderConfig& model, int64_t global_head_dim, const RopeDefaults& absent);

/// Which layers rotate: a 1 in no_rope_layers, or without that list all but every no_rope_layer_interval-th (4). GGUF has no key
/// for it, and a list of our own where layers are not as llama.cpp takes them: every fourth does not, or if `gguf_all`, all do.
std::vector<bool> read_rotating_layers(const ModelConfig& config, int64_t n_layers, bool gguf_all = false);
void write_rotating_layers(Json& keys, const std::vector<bool>& rotates, ConfigFormat format, bool gguf_all = false);

/// What a config.json calls the settings with theta: rope_parameters, or what it holds of one type of layer.
Json rope_parameters(const RopeSpec& rope);
/// rope_theta and rope_scaling, or GGUF's rope.*.
void write_rope(Json& keys, const RopeSpec& rope, ConfigFormat format);
/// rope_parameters with an object for each type of layer in the place of those, or GGUF's rope.freq_base_swa.
void write_layer_ropes(Json& keys, const RopeSpec& global, const RopeSpec& local, ConfigFormat format);

}  // namespace vitrine
