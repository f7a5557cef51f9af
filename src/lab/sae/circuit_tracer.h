#pragma once
// Transcoders in circuit-tracer's files (0.5): one safetensors file for each layer, or a cross-layer transcoder.
// Cross-layer transcoders: Ameisen et al. 2025, transformer-circuits.pub/2025/attribution-graphs/methods.html.
#include <cstdint>
#include <string>
#include <vector>

#include "sae/autoencoder.h"

namespace vitrine {

/// layer_<n>.safetensors of a set: W_enc [d_sae, d_model], W_dec [d_sae, d_model], b_enc, b_dec, and if it has them
/// activation_function.threshold and W_skip. config.yaml beside it says feature_input_hook and feature_output_hook; else they are
/// what the MLP reads and writes.
/// Errors: FileError naming file and tensor.
SparseAutoencoder read_layer_transcoder(const std::string& file);

/// Features that read at one layer and write into it and all later ones.
///   a[i] [N, F] = activation(x[i] W_enc[i] + b_enc[i])       y[l] = b_dec[l] + sum over i <= l of a[i] W_dec[i, l - i]
struct CrossLayerTranscoder {
  int64_t n_layers = 0, d_model = 0, d_sae = 0;
  /// Layer i's encoder, with d_out = (n_layers - i) · d_model: a row of W_dec is what the feature writes into layer i, i + 1, …;
  /// its b_dec is zero. hook_name and hook_name_out are those of layer i.
  std::vector<SparseAutoencoder> layers;
  std::vector<FloatVector> b_dec;  // [n_layers] of [d_model]
};

bool is_cross_layer(const std::string& directory);

/// A directory of W_enc_<i>.safetensors (W_enc_<i> [d_sae, d_model], b_enc_<i>, b_dec_<i>, threshold_<i> if it has one) and
/// W_dec_<i>.safetensors (W_dec_<i> [d_sae, n_layers - i, d_model]); config.yaml as above, or hook_resid_mid and hook_mlp_out.
/// Errors: FileError naming file and tensor.
CrossLayerTranscoder read_cross_layer(const std::string& directory);

/// Writes these files and config.yaml into a directory that is there, the configuration last.
/// Errors: RunError from the disk; InputError as SparseAutoencoder::check, and for encoders that read rows of another width than
/// d_model or are no part of a form that circuit-tracer has (relu and jumprelu).
void write_cross_layer(const std::string& directory, const CrossLayerTranscoder& transcoder);

/// y[l] [rows, d_model] for the features of all layers, which have as many rows each. Errors: UsageError for another number of
/// layers.
std::vector<FloatVector> decode(Context& ctx, const CrossLayerTranscoder& transcoder,
                                const std::vector<SparseFeatures>& features);

}  // namespace vitrine
