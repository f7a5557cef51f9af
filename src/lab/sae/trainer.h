#pragma once
// Learns a sparse autoencoder or a transcoder: the losses, gradients and update of SAELens 6.54's trainer, for features that are
// mostly zero.
//
// B rows of a batch, D d_in, F features; x' = x - b_dec, h = x' W_enc + b_enc, n = norms of W_dec's rows.
//   topk      the k largest of h·n, those above 0: f = h. Reconstruction y = f W_dec + b_dec.
//             Features that were silent for more than dead_window steps also learn from what is left over, e = x - y (a
//             constant): coefficient · min(dead / (D/2), 1) · mean over rows of ‖ê - e‖², ê = the D/2 largest of their h·n, times
//             W_dec / n (arXiv:2406.04093, appendix A.2).
//   batchtopk  the same with the B·k largest of the whole batch (arXiv:2412.06410). A run has no batch, so that a threshold takes
//             its place: a moving average of each step's smallest h·n that was taken.
//             With `widths`, matryoshka (arXiv:2503.17547): the features before each width also reconstruct x by themselves, and
//             the squared errors of these are added.
//   jumprelu  f = h where h > threshold. Straight-through estimator with a rectangle of width `bandwidth` around the threshold
//             (arXiv:2407.14435, section 3). Sparsity loss: step, coefficient · mean number of active features; tanh,
//             coefficient · mean over rows of the sum of tanh(tanh_scale · f · n).
//   standard  f = max(h, 0), and coefficient · mean over rows of the sum of f · n.
//   gated     f = max((h - b_enc) exp(r_mag) + b_mag, 0) where the gate g = max(h, 0) is above 0 (arXiv:2404.16014).
//             coefficient · mean over rows of the sum of g · n, and ‖ŷ - x‖² of what the gates alone make, ŷ = g W_dec + b_dec.
// The loss is the mean over rows of ‖y - x‖² and these. A transcoder (arXiv:2406.11944) has x' = x and a target t [B, d_out] in
// the place of x in the losses; with `skip`, y has x W_skipᵀ besides (arXiv:2501.18823). All gradients together are scaled to a
// norm of 1 at most, then Adam (arXiv:1412.6980) moves every parameter.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "vitrine/float_vector.h"

namespace vitrine {

struct SaeLearning {
  enum class Architecture : uint8_t { topk, batchtopk, jumprelu, standard, gated };
  enum class Sparsity : uint8_t { step, tanh };
  Architecture architecture = Architecture::topk;
  int64_t features = 0;
  int64_t k = 32;
  std::vector<int64_t> widths;      // batchtopk: of the inner levels, ascending, below `features`
  double threshold_lr = 0.01;       // batchtopk: the weight of a step in the moving average
  double aux_coefficient = 1;       // topk, batchtopk: of the loss of silent features
  double sparsity_coefficient = 1;  // jumprelu, standard, gated
  int64_t sparsity_warm_up = 0;     // steps in which it grows from 0
  Sparsity sparsity = Sparsity::step;
  double threshold = 0.01, bandwidth = 0.05, tanh_scale = 4;
  bool ste_to_input = false;  // the estimator also moves what comes before the threshold, as Anthropic's does
  double lr = 3e-4, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  int64_t steps = 0;                     // in all; the schedule goes by it
  int64_t lr_warm_up = 0, lr_decay = 0;  // steps: linear from 0, and to 0 at the end
  int64_t dead_window = 1000;
  double decoder_norm = 0.1;  // of W_dec's rows at the beginning
  bool skip = false;          // of a transcoder
  uint64_t seed = 0;
};

/// Whether a number of features is active, whatever they are: topk, batchtopk.
inline bool takes_k(const SaeLearning& l) {
  return l.architecture == SaeLearning::Architecture::topk || l.architecture == SaeLearning::Architecture::batchtopk;
}

/// What is learned, in memory as training touches it: a feature's numbers lie together.
struct SaeParameters {
  FloatVector W_enc;         // [F, D]: column f of SAELens's W_enc
  FloatVector W_dec;         // [F, O], O d_out
  FloatVector b_enc;         // [F]; of gated what SAELens calls b_gate
  FloatVector b_dec;         // [O]
  FloatVector threshold;     // [F]; jumprelu alone
  FloatVector r_mag, b_mag;  // [F]; gated alone
  FloatVector W_skip;        // [O, D]; with skip alone
  /// All of them, in this order, with their names.
  static constexpr size_t kCount = 8;
  static constexpr const char* kNames[kCount] = {"W_enc", "W_dec", "b_enc", "b_dec", "threshold", "r_mag", "b_mag", "W_skip"};
  FloatVector& operator[](size_t i) {
    FloatVector* const all[kCount] = {&W_enc, &W_dec, &b_enc, &b_dec, &threshold, &r_mag, &b_mag, &W_skip};
    return *all[i];
  }
  const FloatVector& operator[](size_t i) const { return const_cast<SaeParameters&>(*this)[i]; }
};

struct SaeStep {
  double loss = 0, mse = 0, sparsity = 0, aux = 0, inner = 0;  // loss is the sum of the others; inner: of matryoshka's levels
  double explained_variance = 0;                               // 1 - ‖x - y‖² / ‖x - mean of the batch‖²
  double l0 = 0;                                               // active features of a row
  int64_t dead = 0;                                            // silent for more than dead_window steps, before this one
  double gradient_norm = 0;                                    // before it was limited
};

/// Errors: RunError for a loss or a gradient that is NaN or infinite.
void require_finite(const SaeStep& now, int64_t step);

/// Same bits for any number of threads.
class SaeTrainer {
 public:
  /// Random decoder rows of norm decoder_norm, the encoder their transpose, biases 0. d_out: that of a transcoder, whose encoder
  /// is drawn apart; 0: an autoencoder. Errors: InputError for impossible options.
  SaeTrainer(const SaeLearning& learning, int64_t d_in, int64_t d_out = 0);
  ~SaeTrainer();
  SaeTrainer(const SaeTrainer&) = delete;
  SaeTrainer& operator=(const SaeTrainer&) = delete;

  /// Learns from rows x [rows, d_in], and from target [rows, d_out] of a transcoder. Errors: RunError for a loss that is NaN or
  /// infinite; the parameters then stay as they were.
  SaeStep step(ThreadPool& pool, const float* x, size_t rows, const float* target = nullptr);

  const SaeLearning& learning() const { return learning_; }
  int64_t d_in() const { return d_in_; }
  bool is_transcoder() const { return is_transcoder_; }
  int64_t d_out() const { return d_out_; }

  // Everything that changes, to be saved and set between steps.
  SaeParameters parameters, first_moment, second_moment;
  std::vector<int64_t> silent;       // [F] steps since the feature was active
  std::vector<int64_t> activations;  // [F] how often it was, since the beginning
  int64_t steps = 0;                 // taken
  uint64_t rows_seen = 0;
  double batch_threshold = 0;  // batchtopk: the border of h·n without the batch

  /// The learning rate and the sparsity coefficient of the next step.
  double lr_now() const;
  double sparsity_now() const;

 private:
  friend class CrossLayerTrainer;
  struct Work;
  /// Adam with the gradients of the last backward pass, scaled by what limits their norm to 1; counts features and steps.
  void update(ThreadPool& pool, double gradient_norm);
  SaeLearning learning_;
  int64_t d_in_, d_out_;
  bool is_transcoder_;
  std::unique_ptr<Work> work_;
};

}  // namespace vitrine
