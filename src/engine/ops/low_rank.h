#pragma once
// What a low-rank adapter adds to a stored matrix, which stays as it lies. LoRA: arXiv:2106.09685 section 4.1.
#include <cstdint>
#include <unordered_map>

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

/// The same without dropout, `times` as much of it, into memory of the caller's, y_stride elements between rows. Not recorded.
void low_rank_part(Context& ctx, const Tensor& x, const LowRank& adapter, void* y, int64_t y_stride, double times = 1);

/// Backward of low_rank_part: adds to dx [rows, in] and to the gradients of A and B.
void low_rank_part_backward(Context& ctx, const Tensor& x, const LowRank& adapter, const void* dy, int64_t dy_stride,
                            const Tensor& dx);

/// The parts of one adapter by the weights beside which they stand.
struct LowRanks {
  std::unordered_map<const Weight*, const LowRank*> beside;
};

/// f(part, RowAdapter) for each of Context::row_adapters that has a part beside w.
template <class F>
void each_row_adapter(const Context& ctx, const Weight& w, F&& f) {
  for (const RowAdapter& rows : ctx.row_adapters)
    if (const auto part = rows.parts->beside.find(&w); part != rows.parts->beside.end()) f(*part->second, rows);
}

/// Adds to y [rows, out] what Context::row_adapters say, where x [rows, in] has the step's rows in their order.
/// Errors: UsageError on a tape.
void add_row_adapters(Context& ctx, const Tensor& x, const Weight& w, const Tensor& y);

/// Row `out` of the matrix that the two are together: adds scale · B[out] A to row [in].
void add_merged(const LowRank& adapter, int64_t out, float* row);

}  // namespace vitrine
