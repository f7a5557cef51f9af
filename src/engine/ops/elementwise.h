#pragma once
// Ops that work on each number, or add two tensors.
#include "kernels/types.h"
#include "ops/context.h"

namespace vitrine {

/// a + b, same shape. Backward: both.
Tensor add(Context& ctx, const Tensor& a, const Tensor& b);

/// x · factor. Backward: x.
Tensor scale(Context& ctx, const Tensor& x, double factor);

/// cap · tanh(x / cap), or x itself if cap is 0. arXiv:2408.00118 section 2. Backward: x.
Tensor softcap(Context& ctx, const Tensor& x, double cap);

/// f(x): ReLU, GELU (tanh form arXiv:1606.08415 equation in section 2, or exact with erf), SiLU, sigmoid. Backward: x.
Tensor activation(Context& ctx, const Tensor& x, Activation f);

/// f(gate) · up, same shape: the gated half of GeGLU and SwiGLU (arXiv:2002.05202), or a gate in front of a matrix. Backward:
/// both.
Tensor gated(Context& ctx, const Tensor& gate, const Tensor& up, Activation f);

/// Each row of x times its number: x [rows, d], of_row [rows, 1]. Backward: both.
Tensor scale_rows(Context& ctx, const Tensor& x, const Tensor& of_row);

/// In training: zero with probability p, the rest divided by 1 - p. Otherwise (no tape, or p = 0) x itself. x: the step's rows.
/// The choice depends on ctx.step_of_training, site and the element alone: the same on any number of threads and ranks, and again
/// when a block is recomputed. arXiv:1207.0580. Backward: x.
Tensor dropout(Context& ctx, const Tensor& x, double p, uint64_t site);

/// The same of something that belongs to the sequence which begins at the step's row `first_row`, as a pattern does.
/// site: below 2^32.
Tensor dropout_of_sequence(Context& ctx, const Tensor& x, double p, uint64_t site, int64_t first_row);

/// [rows, n · head_dim] seen as [rows, n, head_dim]: heads are split by head_dim, never by a global count.
inline Tensor split_heads(Context&, const Tensor& x, int64_t head_dim) {
  return x.view({x.rows(), x.row_size() / head_dim, head_dim});
}
/// [rows, n, head_dim] seen as [rows, n · head_dim].
inline Tensor merge_heads(Context&, const Tensor& x) { return x.view({x.rows(), x.row_size()}); }

}  // namespace vitrine
