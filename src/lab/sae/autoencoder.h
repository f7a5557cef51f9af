#pragma once
// Sparse autoencoders and transcoders: the value at a hook as a sum of few learned directions ("features"), and back.
//
// N rows, I d_in, F d_sae (number of features), O d_out.
//   x'  = norm(x) - b_dec                  b_dec only if apply_b_dec_to_input; norm: see InputNorm
//   pre = x' W_enc + b_enc                 [N, F]
//   a   = activation(pre)                  [N, F], few of them not zero
//   y   = unnorm(a W_dec + b_dec)          [N, O]; of a transcoder without unnorm, plus x W_skipᵀ if it has one
//
// Activations: relu, Bricken et al. 2023 (transformer-circuits.pub/2023/monosemantic-features); gated, arXiv:2404.16014; topk,
// arXiv:2406.04093; abs_topk, arXiv:2510.00404; jumprelu, arXiv:2407.14435. Transcoders: arXiv:2406.11944.
// Names and meanings are SAELens's (6.54), whose values these are.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/context.h"
#include "vitrine/float_vector.h"

namespace vitrine {

struct SparseAutoencoder {
  enum class Activation : uint8_t {
    relu,      // max(pre, 0)
    gated,     // max(x' W_enc · exp(r_mag) + b_mag, 0) where x' W_enc + b_gate > 0
    topk,      // max(pre, 0) of the k largest
    abs_topk,  // pre of the k largest |pre|
    jumprelu,  // max(pre, 0) where pre > threshold
  };
  /// What happens to each row of the input, and is undone in what an autoencoder gives.
  enum class InputNorm : uint8_t {
    none,
    constant_norm_rescale,  // x · sqrt(d_in) / ‖x‖
    layer_norm,             // (x - mean) / (std + 1e-5), std with d_in - 1
  };

  Activation activation = Activation::relu;
  InputNorm input_norm = InputNorm::none;
  int64_t d_in = 0, d_sae = 0, d_out = 0;
  int64_t k = 0;  // of topk and abs_topk
  bool apply_b_dec_to_input = true;
  /// topk, abs_topk: features are pre · ‖their row of W_dec‖, and are divided by that norm before they meet W_dec.
  bool rescale_acts_by_decoder_norm = false;
  bool transcoder = false;  // what it writes is not what it reads

  std::string hook_name;      // where it reads: "blocks.3.hook_resid_post"; empty: not said
  std::string hook_name_out;  // where it writes; the same unless a transcoder
  std::string model_name;     // empty: not said

  FloatVector W_enc;                 // [d_in, d_sae]
  FloatVector W_dec;                 // [d_sae, d_out]
  FloatVector b_enc;                 // [d_sae]; empty if gated
  FloatVector b_dec;                 // [d_out]
  FloatVector threshold;             // [d_sae] of jumprelu
  FloatVector r_mag, b_mag, b_gate;  // [d_sae] of gated
  FloatVector W_skip;                // [d_out, d_in], or empty

  /// Errors: InputError, beginning with `where`, for sizes that disagree with the dimensions, a k outside [1, d_sae], and numbers
  /// that are NaN or infinite.
  void check(const std::string& where) const;
  /// The direction of a feature: row `feature` of W_dec.
  std::span<const float> direction(int64_t feature) const { return {W_dec.data() + feature * d_out, static_cast<size_t>(d_out)}; }
};

/// What a feature is divided by before it meets its direction: 1, or the direction's norm with rescale_acts_by_decoder_norm.
float decoder_norm(const SparseAutoencoder& sae, int64_t feature);

/// Errors: InputError, beginning with `where`, for a feature that the autoencoder does not have.
void check_feature(const SparseAutoencoder& sae, int64_t feature, const std::string& where = "");

/// SAELens's word for it: "standard", "gated", "topk", "abstopk", "jumprelu"; of transcoders "transcoder", "skip_transcoder",
/// "jumprelu_transcoder", "jumprelu_skip_transcoder".
std::string architecture_name(const SparseAutoencoder& sae);

/// Features of some rows, those that are not zero.
struct SparseFeatures {
  std::vector<int64_t> begin;  // [rows + 1]: row r has entries [begin[r], begin[r + 1])
  std::vector<int32_t> index;  // which features; ascending within a row
  std::vector<float> value;
  /// Of InputNorm: norm(x) = (x - shift) · scale for each row, and decode adds them back; empty: none.
  std::vector<float> shift, unscale;  // unscale: y · unscale + shift undoes it

  int64_t rows() const { return begin.empty() ? 0 : static_cast<int64_t>(begin.size()) - 1; }
};

/// after - before, of the same rows: entries that differ. Without shift and unscale.
SparseFeatures difference(const SparseFeatures& after, const SparseFeatures& before);

/// Features of x [rows, d_in] (contiguous). A row's result does not depend on the other rows or the number of threads beyond what
/// ops/linear.h says. Among equal numbers at topk's border the first features are taken.
/// given [rows, d_sae]: these pre-activations in the place of those of x, as pre_activations() gives them; a gated one's gates
/// are x's. Errors: RunError for NaN in x or among what it meets.
SparseFeatures encode(Context& ctx, const SparseAutoencoder& sae, const float* x, int64_t rows, const float* given = nullptr);

/// y [rows, d_out] = what these features stand for. `x` [rows, d_in] is read for W_skip alone and may be null without one.
/// Errors: UsageError for a feature outside [0, d_sae).
void decode(Context& ctx, const SparseAutoencoder& sae, const SparseFeatures& features, const float* x, float* y);

/// All pre-activations as a table: pre [rows, d_sae] (gated: those of the magnitudes; with rescale_acts_by_decoder_norm before
/// it).
void pre_activations(Context& ctx, const SparseAutoencoder& sae, const float* x, int64_t rows, float* pre);

/// Features as a table [rows, d_sae], and back: entries that are not zero.
void to_dense(const SparseFeatures& features, int64_t d_sae, float* dense);
/// shift and unscale come from `like` (they belong to the rows).
SparseFeatures to_sparse(const float* dense, int64_t rows, int64_t d_sae, const SparseFeatures* like = nullptr);

}  // namespace vitrine
