#pragma once
// What a low-rank adapter adds to a stored matrix, which stays as it lies. LoRA: arXiv:2106.09685 section 4.1.
#include <cstdint>

#include "ops/context.h"
#include "ops/weight.h"

namespace vitrine {

/// y += scale · dropout(x) Aᵀ Bᵀ. A and B are learned, the matrix beside them is not.
struct LowRank {
  Weight A;            // [rank, in]
  Weight B;            // [out, rank]
  double scale = 1;    // alpha / rank
  double dropout = 0;  // of x, in training
  uint64_t site = 0;   // of that dropout: the same for parts of one stacked matrix, which read the same x
};

/// Adds to y [rows, out], which linear has made from x [rows, in] and recorded. Backward: x, A, B.
void add_low_rank(Context& ctx, const Tensor& x, const LowRank& adapter, const Tensor& y);

/// The same without dropout into memory of the caller's, y_stride elements between rows. Not recorded.
void low_rank_part(Context& ctx, const Tensor& x, const LowRank& adapter, void* y, int64_t y_stride);

/// Backward of low_rank_part: adds to dx [rows, in] and to the gradients of A and B.
void low_rank_part_backward(Context& ctx, const Tensor& x, const LowRank& adapter, const void* dy, int64_t dy_stride,
                            const Tensor& dx);

/// Row `out` of the matrix that the two are together: adds scale · B[out] A to row [in].
void add_merged(const LowRank& adapter, int64_t out, float* row);

}  // namespace vitrine
