#pragma once
// The part of model/rope_config.h that is GGUF's, and the checks that both formats share.
#include "model/rope_config.h"

namespace vitrine {

/// read_rope of GGUF's rope.* and its tensors of divisors, for heads of `head_dim` components.
RopeSpec read_gguf_rope(const ModelConfig& config, const DecoderConfig& model, int64_t head_dim, const RopeDefaults& absent);
LayerRopes read_gguf_layer_ropes(const ModelConfig& config, const DecoderConfig& model, int64_t global_head_dim,
                                 const RopeDefaults& absent);
void write_gguf_rope(Json& keys, const RopeSpec& rope);

/// YaRN's factor of cosines and sines for a stretch by `factor`.
double yarn_attention_factor(double factor, double mscale = 1);
/// Errors: FileError for a RoPE that rotates no whole number of pairs, for a theta or factor that is not above 0.
void check_rope(const ModelConfig& config, const RopeSpec& spec, int64_t head_dim);
/// Errors: FileError naming one of the three keys.
void check_yarn(const ConfigReader& keys, const RopeSpec& spec, const char* fast, const char* slow, const char* attention_factor);

}  // namespace vitrine
