#pragma once
// Matrix products with stored weights.
#include <array>
#include <functional>
#include <span>

#include "ops/context.h"
#include "ops/weight.h"

namespace vitrine {

using WeightRef = std::reference_wrapper<const Weight>;

/// y = x Wᵀ + bias for one weight, and what its adapter and those of the rows (Context::row_adapters) add.
///
/// x        [rows, in]
/// returns  y [rows, out]
///
/// Up to kFewRows rows the weights are read once, row by row, in their stored type; more rows go through expanded
/// panels (docs/numerics.md says what is rounded when). A row's result does not depend on the other rows.
/// Backward: x, W, bias. Errors: ShapeError naming the two sizes that disagree.
Tensor linear(Context& ctx, const Tensor& x, const Weight& w);

/// The same for several weights that read the same x: one parallel region, one conversion of x.
template <size_t N>
std::array<Tensor, N> linear(Context& ctx, const Tensor& x, const WeightRef (&w)[N]);

/// y[r] += bias for every row of y [rows, out]. Not recorded.
void add_bias(Context& ctx, const Vector& bias, const Tensor& y);

/// As linear(x, w) into memory of the caller's: y [rows, out] with y_stride elements between rows. Not recorded.
/// first, n: outputs [first, first + n) only, so that a head is read in chunks of the vocabulary. Sums only: no bias.
void linear_part(Context& ctx, const Tensor& x, const Weight& w, int64_t first, int64_t n, void* y, int64_t y_stride);

/// Rows [row, row + rows) of x and the weight that they meet; y [rows, out].
struct Stretch {
  const Weight* w;
  int64_t row, rows;
  void* y;
};
/// The products of several weights, each with rows of its own, in one parallel region. Sums only, not recorded. The bits are
/// those of linear_part() for each, if all have at most kFewRows rows or all go as many (Numerics::exact). Weights of the same
/// rows stand side by side, so that x is converted once.
void linear_stretches(Context& ctx, const Tensor& x, std::span<const Stretch> stretches);

/// Backward of linear_part: dx += dy W[first .. first + n), and the same part of W's (not the bias's) gradient.
/// dx may be empty; add false: it is set instead; set_w: so is that part of W's gradient, which is for the caller to know
/// (takes_first). dy [rows, n] with dy_stride elements between rows.
void linear_part_backward(Context& ctx, const Tensor& x, const Weight& w, int64_t first, int64_t n, const void* dy,
                          int64_t dy_stride, const Tensor& dx, bool add = true, bool set_w = false);

/// The gradient of the bias of outputs [first, first + n), if it is wanted: sums of dy's columns, rows in order.
/// dy [rows, n] of `dtype` with dy_stride elements between rows.
void bias_backward(Context& ctx, const Weight& w, int64_t first, int64_t n, const void* dy, int64_t dy_stride, int64_t rows,
                   DType dtype);

// -------------------------------------------------------------------------------------------------------------------
void linear_into(Context& ctx, const Tensor& x, const WeightRef* weights, Tensor* results, size_t n);

template <size_t N>
std::array<Tensor, N> linear(Context& ctx, const Tensor& x, const WeightRef (&w)[N]) {
  std::array<Tensor, N> results;
  linear_into(ctx, x, w, results.data(), N);
  return results;
}

}  // namespace vitrine
