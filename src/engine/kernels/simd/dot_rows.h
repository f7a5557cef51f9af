#pragma once
// Products of a few rows with weights that lie [out, in]: dot products, bound by how fast the weights can be read.
//
// Every (row, output) pair has one accumulator and sums k in one fixed order, so its bits depend neither on how many
// rows or outputs are computed beside it nor on where a caller cuts. Several weight rows at a time hide the latency of
// the additions and share the loads of x; the next rows are prefetched while these are read.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

/// Rows of x at a time: with few registers, more than four leave room for one weight row only, and all of x would come
/// from L2 for every one of them.
constexpr int kRowsTogether = kManyRegisters ? 8 : 4;

/// Weight rows at a time for R rows of x: R * J accumulators, J weights and one x in registers.
template <int R>
constexpr int rows_at_a_time() {
  if (kManyRegisters) return R == 1 ? 8 : R == 2 ? 8 : R <= 4 ? 6 : R <= 6 ? 4 : 3;
  if (kLanes < 8) return R <= 2 ? 4 : 2;  // WebAssembly, whose compilers need more registers for the same
  return R == 1 ? 8 : R == 2 ? 4 : 3;
}

template <class W, int R, int J, int V = 0>
HWY_INLINE void add_unit(const char* w, size_t stride, const float* x, size_t x_stride, size_t i, Vec (&sum)[J][R]) {
  Vec weight[J];
  for (int j = 0; j < J; ++j) weight[j] = weight_part<W, V>(w + size_t(j) * stride, i);
  for (int r = 0; r < R; ++r) {
    const Vec v = load(x + size_t(r) * x_stride + i + V * kLanes);
    for (int j = 0; j < J; ++j) sum[j][r] = hn::MulAdd(weight[j], v, sum[j][r]);
  }
  if constexpr (V + 1 < kVectors) add_unit<W, R, J, V + 1>(w, stride, x, x_stride, i, sum);
}

/// Long rows of 16-bit weights are read one after the other where one chain of additions keeps up with memory.
template <class W>
constexpr bool kLongRowsAlone = kLanes == 16 && W::kBytes == 2;

template <class W, int R, int J>
HWY_INLINE void dot_block(const char* w, size_t stride, size_t k, const float* x, size_t x_stride, float* y, size_t y_stride) {
  Vec sum[J][R];
  for (int j = 0; j < J; ++j)
    for (int r = 0; r < R; ++r) sum[j][r] = hn::Zero(Tag());
  // Bytes of a unit of 32 elements.
  constexpr size_t kUnitBytes = W::kIsBlock ? W::kBytes : kBlock * W::kBytes;
  const char* ahead = ahead_of_rows(w, size_t(J) * stride);
  size_t i = 0;
  for (; i + kBlock <= k; i += kBlock) {
    if constexpr (J > 1 || kLongRowsAlone<W>) {
      ask_for(ahead, J * kUnitBytes);
      ahead += J * kUnitBytes;
    }
    add_unit<W, R, J>(w, stride, x, x_stride, i, sum);
  }
  if constexpr (!W::kIsBlock) {
    for (; i < k; i += kLanes) {
      const size_t n = min_of(kLanes, k - i);
      for (int j = 0; j < J; ++j) {
        const Vec weight = weight_load_up_to<W>(w + size_t(j) * stride + i * W::kBytes, n);
        for (int r = 0; r < R; ++r) sum[j][r] = hn::MulAdd(weight, load_up_to(x + size_t(r) * x_stride + i, n), sum[j][r]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < J; ++j) y[size_t(r) * y_stride + size_t(j)] = sum_of(sum[j][r]);
}

template <class W, int R>
void dot_rows_fixed(const char* w, size_t stride, size_t n, size_t k, const float* x, size_t x_stride, float* y,
                    size_t y_stride) {
  if constexpr (R == 1 && kLongRowsAlone<W>) {
    if (k > kShortRow) {
      for (size_t j = 0; j < n; ++j) dot_block<W, 1, 1>(w + j * stride, stride, k, x, x_stride, y + j, y_stride);
      return;
    }
  }
  constexpr int kFirst = R < kRowsTogether ? R : kRowsTogether, kRest = R - kFirst, kJ = rows_at_a_time<kFirst>();
  const float* x_rest = x + size_t(kFirst) * x_stride;
  float* y_rest = y + size_t(kFirst) * y_stride;
  size_t j = 0;
  for (; j + kJ <= n; j += kJ) {
    dot_block<W, kFirst, kJ>(w + j * stride, stride, k, x, x_stride, y + j, y_stride);
    if constexpr (kRest > 0) dot_block<W, kRest, kJ>(w + j * stride, stride, k, x_rest, x_stride, y_rest + j, y_stride);
  }
  for (; j < n; ++j) {
    dot_block<W, kFirst, 1>(w + j * stride, stride, k, x, x_stride, y + j, y_stride);
    if constexpr (kRest > 0) dot_block<W, kRest, 1>(w + j * stride, stride, k, x_rest, x_stride, y_rest + j, y_stride);
  }
}

template <class W>
void dot_rows(const void* weights, size_t stride, size_t n, size_t k, const float* x, size_t x_stride, size_t rows, float* y,
              size_t y_stride) {
  const char* w = static_cast<const char*>(weights);
  with_rows(rows, [&](auto r) HWY_ATTR { dot_rows_fixed<W, decltype(r)::value>(w, stride, n, k, x, x_stride, y, y_stride); });
}

}  // namespace
}  // namespace vitrine
