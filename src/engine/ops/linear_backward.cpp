#include <algorithm>

#include "kernels/table.h"
#include "ops/linear.h"
#include "ops/packed_product.h"

namespace vitrine {
namespace {

// Gradient checks: the definitions in double.
// dx[r] += sum over j of dy[r][j] W[j]: threads share the rows.
void input_backward(Context& ctx, const Weight& w, int64_t first, int64_t n, const double* dy, int64_t dy_stride,
                    const Tensor& dx) {
  ctx.run(dx.rows(), [&](int64_t r, int) {
    double* out = dx.row<double>(r);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < w.in; ++i) out[i] += dy[r * dy_stride + j] * w.at<double>(first + j, i);
  });
}
// dW[j] += sum over r of dy[r][j] x[r], rows in order: threads share the outputs.
void weight_backward(Context& ctx, const Tensor& x, const Weight& w, int64_t first, int64_t n, const double* dy,
                     int64_t dy_stride) {
  auto* dw = static_cast<double*>(w.grad.data);
  const auto stride = static_cast<int64_t>(w.grad.stride);
  ctx.run(n, [&](int64_t j, int) {
    for (int64_t r = 0; r < x.rows(); ++r)
      for (int64_t i = 0; i < w.in; ++i)
        dw[w.by_columns ? i * stride + first + j : (first + j) * stride + i] += dy[r * dy_stride + j] * x.row<double>(r)[i];
  });
}

// Outputs [first, first + n) as a matrix [n, in] of f32: where they lie, or widened into the context's scratch.
Operand part_in_f32(Context& ctx, const Weight& w, int64_t first, int64_t n) {
  const std::byte* data = w.by_columns ? w.data + row_bytes(w.dtype, static_cast<size_t>(first)) : w.stored_row(first);
  if (w.dtype == DType::f32) return {reinterpret_cast<const float*>(data), w.stride / sizeof(float), w.by_columns};
  const int64_t lines = w.by_columns ? w.in : n;
  const auto length = static_cast<size_t>(w.by_columns ? n : w.in);
  auto* wide = ctx.scratch<float>(static_cast<size_t>(lines) * length);
  ctx.run(lines, [&](int64_t i, int) {
    const auto line = static_cast<size_t>(i);
    kernels().widen[static_cast<size_t>(w.dtype)](data + line * w.stride, length, wide + line * length);
  });
  return {wide, length, w.by_columns};
}

}  // namespace

void linear_part_backward(Context& ctx, const Tensor& x, const Weight& w, int64_t first, int64_t n, const void* dy,
                          int64_t dy_stride, const Tensor& dx, bool add, bool set_w) {
  VITRINE_CHECK(w.grad.unset == nullptr || !*w.grad.unset, "somebody takes the first contribution");
  if (x.dtype() == DType::f64) {
    if (dx && !add) std::fill(dx.data<double>(), dx.data<double>() + dx.count(), 0.0);
    if (dx) input_backward(ctx, w, first, n, static_cast<const double*>(dy), dy_stride, dx);
    if (w.grad.data != nullptr) weight_backward(ctx, x, w, first, n, static_cast<const double*>(dy), dy_stride);
    return;
  }
  const auto scratch = ctx.frame();
  const auto rows = static_cast<size_t>(x.rows()), in = static_cast<size_t>(w.in), out = static_cast<size_t>(n);
  const Operand of_y{static_cast<const float*>(dy), static_cast<size_t>(dy_stride)}, of_x{x.data<float>(), in};
  if (dx) packed_product(ctx, of_y, part_in_f32(ctx, w, first, n), rows, in, out, dx.data<float>(), in, add);
  if (w.grad.data == nullptr) return;
  auto* dw = static_cast<float*>(w.grad.data);
  const size_t stride = w.grad.stride, begin = static_cast<size_t>(first);
  if (w.by_columns) {
    packed_product(ctx, of_x.transpose(), of_y, in, out, rows, dw + begin, stride, !set_w);
  } else {
    packed_product(ctx, of_y.transpose(), of_x, out, in, rows, dw + begin * stride, stride, !set_w);
  }
}

void bias_backward(Context& ctx, const Weight& w, int64_t first, int64_t n, const void* dy, int64_t dy_stride, int64_t rows,
                   DType dtype) {
  if (!w.bias || w.bias.grad.data == nullptr) return;
  if (dtype == DType::f64) {
    auto* db = static_cast<double*>(w.bias.grad.data) + first;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < n; ++j) db[j] += static_cast<const double*>(dy)[r * dy_stride + j];
    return;
  }
  // Short lines are cut, too: a column's sum goes through the rows in order, however many columns there are.
  const int64_t columns = std::clamp<int64_t>(n / 128 * 32, 32, 256);
  const auto scratch = ctx.frame();
  auto* ones = ctx.scratch<float>(static_cast<size_t>(rows));
  std::fill(ones, ones + rows, 1.0f);
  ctx.run((n + columns - 1) / columns, [&](int64_t chunk, int) {
    const int64_t column = chunk * columns;
    kernels().add_products(ones, static_cast<size_t>(rows), 1, static_cast<const float*>(dy) + column,
                           static_cast<size_t>(dy_stride), static_cast<size_t>(rows),
                           static_cast<size_t>(std::min(columns, n - column)),
                           static_cast<float*>(w.bias.grad.data) + first + column, 0);
  });
}

}  // namespace vitrine
