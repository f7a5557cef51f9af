#pragma once
// A recurrence over rows with a state for each head, which the gated delta rule and Mamba 2's state-space layer share.
#include "ops/context.h"
#include "ops/step.h"

namespace vitrine {

/// q, k       [rows, n_key_heads, d_key]
/// v          [rows, n_heads, d_value]    each key head serves n_heads / n_key_heads neighboring heads
///                                        (tiled: head h reads key head h % n_key_heads)
/// log_decay  [rows, n_heads]
/// beta       [rows, n_heads]
struct ScanInputs {
  Tensor q, k, v, log_decay, beta;
  bool tiled = false;
  bool corrects = false;
};

/// S = exp(log_decay) S + k cᵀ, z = Sᵀ q, for each head's state S [d_key, d_value], where c = beta (v - exp(log_decay) Sᵀ k) if
/// it corrects, else beta v. S begins as the first numbers of what the sequence's cache carries in `layer` (else as 0), and is
/// put there behind the last row, which counts once step.commit is called. Returns z [rows, n_heads, d_value].
///
/// A row's bits depend neither on how the sequence was cut into steps nor on the other sequences.
/// Backward: all five. Keeps the state at every 64th row, and computes those between again. Not defined with a cache.
/// Errors: ShapeError naming the sizes that disagree; UsageError for a tape or f64 together with a cache.
Tensor state_scan(Context& ctx, const ScanInputs& in, const Step& step, int layer);

}  // namespace vitrine
