#pragma once
// Transcoders of all layers of a model, which stand for its MLPs.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/context.h"
#include "sae/autoencoder.h"
#include "vitrine/float_vector.h"

namespace vitrine {

struct TranscoderSet {
  /// layers[i] reads at layer i's hook_name and writes at its hook_name_out, d_out = d_model. Of a cross-layer transcoder it also
  /// writes at those of all later layers: d_out = (n_layers - i) · d_model, its b_dec is zero.
  std::vector<std::shared_ptr<const SparseAutoencoder>> layers;
  std::vector<FloatVector> b_dec;  // [n_layers] of [d_model], of a cross-layer transcoder
  std::string name;                // what config.yaml calls it ("scan"), else the folder's name

  bool cross_layer() const { return !b_dec.empty(); }
  int64_t n_layers() const { return static_cast<int64_t>(layers.size()); }
};

/// Reads a directory:
///   layer_<n>.safetensors                      circuit-tracer's, a file for each layer
///   W_enc_<n>.safetensors, W_dec_<n>…          circuit-tracer's cross-layer transcoder
///   folders, at most three deep, each one      SAELens's or Gemma Scope's; the layer is that of the hook that its files say
///   that read_sae reads
/// Errors: FileError naming the file, also for a layer that is missing or there twice, and for a member that is no transcoder.
TranscoderSet read_transcoders(const std::string& directory);

/// The same from transcoders in memory, in any order; `where` begins messages. Errors: InputError, as read_transcoders.
TranscoderSet transcoder_set(std::vector<std::shared_ptr<const SparseAutoencoder>> layers, const std::string& name,
                             const std::string& where);

/// What the features of all layers stand for at each layer's hook_name_out, [n_layers] of [rows, d_model]. inputs [n_layers] of
/// [rows, d_model] are read for W_skip alone.
std::vector<FloatVector> decode(Context& ctx, const TranscoderSet& set, const std::vector<SparseFeatures>& features,
                                const std::vector<FloatVector>& inputs);

}  // namespace vitrine
