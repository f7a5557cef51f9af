#pragma once
// Mamba 2's state-space layer, a recurrence that takes attention's place, and what it reads.
#include <limits>

#include "ops/context.h"
#include "ops/step.h"
#include "ops/weight.h"

namespace vitrine {

/// A selective state space: a state S [d_state, d_head] for each head, which forgets, takes the head's input in along B, and is
/// read along C; D passes the input by it:
///   S = exp(log_decay) S + Δ B xᵀ,   z = Sᵀ C + D x.
///
/// x          [rows, n_heads, d_head]
/// B, C       [rows, n_groups, d_state]   each group serves n_heads / n_groups neighboring heads
/// delta      [rows, n_heads]             Δ (time_step)
/// log_decay  [rows, n_heads]             A Δ, at most 0 (scale_heads)
/// D          [n_heads]
/// step       where each sequence's rows begin, and the state of `layer` in its cache, whose first numbers it is; the state
///            behind the last row counts once step.commit is called
/// returns    z [rows, n_heads, d_head]
///
/// A row's bits depend neither on how the sequence was cut into steps nor on the other sequences.
/// Hook points under `name`: hook_state_z, without D x; hook_z. Backward: all. Not defined with a cache.
/// Errors: ShapeError naming the sizes that disagree; UsageError for a tape or f64 together with a cache.
/// Source: arXiv:2405.21060 section 2.1 and 7.
Tensor state_space(Context& ctx, std::string_view name, const Tensor& x, const Tensor& B, const Tensor& C, const Tensor& delta,
                   const Tensor& log_decay, const Vector& D, const Step& step, int layer);

/// Δ = softplus(x + bias) within [least, most]; x [rows, n], bias [n]. Backward: x, bias. arXiv:2312.00752 section 3.6.
struct TimeStepLimits {
  double least = 0, most = std::numeric_limits<double>::infinity();
};
Tensor time_step(Context& ctx, const Tensor& x, const Vector& bias, const TimeStepLimits& limits = {});

/// x [rows, n, d] or [rows, n], each head times its number of w [n], or with `is_log` times -exp of it. Backward: x, w.
Tensor scale_heads(Context& ctx, const Tensor& x, const Vector& w, bool is_log = false);

}  // namespace vitrine
