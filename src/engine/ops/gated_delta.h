#pragma once
// The gated delta rule, a recurrence that takes attention's place, and what it reads.
#include "ops/context.h"
#include "ops/step.h"
#include "ops/weight.h"

namespace vitrine {

/// The gated delta rule: a state S [d_key, d_value] for each head, which forgets, corrects what it holds under the key, and is
/// read by the query:
///   S' = exp(g) S,   S = S' + beta k (v - S'ᵀ k)ᵀ,   z = Sᵀ q.
///
/// q, k       [rows, n_key_heads, d_key]     of length 1 (l2_norm), q with the scale in it
/// v          [rows, n_heads, d_value]       each key head serves n_heads / n_key_heads neighboring heads
///                                           (tiled: head h reads key head h % n_key_heads)
/// log_decay  [rows, n_heads]                g, at most 0
/// beta       [rows, n_heads]                how much of the correction is made
/// step       where each sequence's rows begin, and the state of `layer` in its cache, whose first numbers it is; the state
/// behind the
///            last row counts once step.commit is called
/// returns    z [rows, n_heads, d_value]
///
/// A row's bits depend neither on how the sequence was cut into steps nor on the other sequences.
/// Hook point under `name`: hook_z.
/// Backward: all five. Keeps the state at every 64th row, and computes those between again. Not defined with a cache.
/// Errors: ShapeError naming the sizes that disagree; UsageError for a tape or f64 together with a cache.
/// Source: arXiv:2412.06464 equation 10.
Tensor gated_delta(Context& ctx, std::string_view name, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& log_decay, const Tensor& beta, const Step& step, int layer, bool tiled = false);

/// x · factor / sqrt(Σ x² + eps), each vector of the last axis by itself. Backward: x.
Tensor l2_norm(Context& ctx, const Tensor& x, double eps, double factor = 1);

/// The logarithm of the decay, g = A softplus(x + dt_bias), x [rows, n_heads]; is_log: `A` holds log(-A), as Hugging Face files
/// do. Backward: x, A, dt_bias. arXiv:2312.00752 section 3.6 (softplus), 2405.21060 (one number a head).
Tensor decay_log(Context& ctx, const Tensor& x, const Vector& A, const Vector& dt_bias, bool is_log);

}  // namespace vitrine
