#pragma once
// Normalization of each row.
#include "ops/context.h"
#include "ops/weight.h"

namespace vitrine {

struct NormSpec {
  double eps = 1e-6;
  double offset = 0;  // added to the weight: 1 for Gemma's files from Hugging Face, whose w means a factor 1 + w
};

/// RMSNorm: y = x / sqrt(mean(x²) + eps) · (offset + w).  arXiv:1910.07467.
///
/// x [rows, d], w.data [d]; returns y [rows, d]. Or x [rows, n_heads, d]: each head's vector is normalized by itself, as queries
/// and keys are, and every shape below has n_heads in its middle; w [n_heads, d] has weights of their own for each head.
/// Hook points under `name`: hook_scale [rows, 1] = sqrt(mean(x²) + eps); hook_normalized_pre [rows, d] = x / scale;
/// hook_normalized [rows, d] = y, what the next op reads. Replacing the scale or the normalized row changes what follows.
/// Backward: x, w; with a listener inside, through what it put in place of the scale and the normalized row. Errors: ShapeError.
Tensor rms_norm(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const NormSpec& spec);

/// LayerNorm: y = (x - mean) / sqrt(variance + eps) · w + b with the population's variance.  arXiv:1607.06450.
/// b of size 0: there is none.
/// Hooks as rms_norm; hook_scale is sqrt(variance + eps), hook_normalized_pre is (x - mean) / scale. Backward: x, w, b.
Tensor layer_norm(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const Vector& b, const NormSpec& spec);

}  // namespace vitrine
