#pragma once
// Learns a cross-layer transcoder: features that read at one layer and write into it and all later ones (Ameisen et al. 2025,
// transformer-circuits.pub/2025/attribution-graphs/methods.html). L layers, B rows of a batch, D d_in, O d_out, F features a
// layer.
//
//   a[i] = activation(x[i] W_enc[i] + b_enc[i])        y[m] = b_dec[m] + sum over i <= m of a[i] W_dec[i, m - i]
//
// The loss is the mean over rows of the sum over layers of ‖y[m] - t[m]‖², and the sparsity losses of SaeTrainer's jumprelu and
// standard, where a feature's norm is that of all that it writes; batchtopk has k features on average in each layer, and its
// silent features do not learn. All gradients together are scaled to a norm of 1 at most, then Adam moves every parameter.
#include <cstdint>
#include <memory>
#include <vector>

#include "sae/trainer.h"

namespace vitrine {

/// Same bits for any number of threads.
class CrossLayerTrainer {
 public:
  /// learning.features is of a layer. Errors: as SaeTrainer; InputError for fewer than one layer, and for a skip connection,
  /// widths and architectures that it does not have.
  CrossLayerTrainer(const SaeLearning& learning, int64_t n_layers, int64_t d_in, int64_t d_out);

  /// Learns from x [L][rows, d_in] and target [rows, L, d_out]. Errors: RunError for a loss that is NaN or infinite; the
  /// parameters then stay as they were.
  SaeStep step(ThreadPool& pool, const std::vector<const float*>& x, size_t rows, const float* target);

  int64_t n_layers() const { return static_cast<int64_t>(layers_.size()); }
  int64_t d_out() const { return d_out_; }
  /// Of layer i: W_dec [F, L - i, d_out]; b_dec [L, d_out] of layer 0, which is that of all, and none of the others.
  SaeTrainer& layer(size_t i) { return *layers_[i]; }
  const SaeTrainer& layer(size_t i) const { return *layers_[i]; }

 private:
  std::vector<std::unique_ptr<SaeTrainer>> layers_;
  int64_t d_out_;
  FloatVector y_;
};

}  // namespace vitrine
