#pragma once
// Products of a few rows with weights that lie [in, out], as GPT-2 stores them: lanes are outputs, and the sums wait in
// y while the weights are read in the order they lie. Each output's sum runs over the inputs in order, whatever the
// cuts and the rows.
#include "kernels/simd/decoded.h"

namespace vitrine {
namespace {

constexpr size_t kInputs = 8;  // weight rows read side by side: y is loaded and stored once for all of them

/// y[r][j] += (or =) sum over `inputs` weight rows, for n <= kLanes outputs.
template <class W, int R, size_t kN>
HWY_INLINE void add_inputs(const char* w, size_t stride, size_t inputs, size_t n, const float* x, size_t x_stride, float* y,
                           size_t y_stride, bool first) {
  Vec sum[R];
  for (int r = 0; r < R; ++r) sum[r] = first ? hn::Zero(Tag()) : load_up_to(y + size_t(r) * y_stride, kN ? kN : n);
  for (size_t i = 0; i < inputs; ++i) {
    if constexpr (kN != 0) __builtin_prefetch(w + (i + kInputs) * stride, 0, 2);  // strips are too short for the CPU to guess
    const Vec weight = weight_load_up_to<W>(w + i * stride, kN ? kN : n);
    for (int r = 0; r < R; ++r) sum[r] = hn::MulAdd(weight, broadcast(x[size_t(r) * x_stride + i]), sum[r]);
  }
  for (int r = 0; r < R; ++r) store_up_to(sum[r], y + size_t(r) * y_stride, kN ? kN : n);
}

template <class W, int R>
void dot_columns_fixed(const char* w, size_t stride, size_t n, size_t k, const float* x, size_t x_stride, float* y,
                       size_t y_stride) {
  for (size_t i = 0; i < k || i == 0; i += kInputs) {
    const size_t inputs = min_of(kInputs, k - i);
    const char* rows = w + i * stride;
    size_t j = 0;
    if (inputs == kInputs) {
      for (; j + kLanes <= n; j += kLanes)
        add_inputs<W, R, kLanes>(rows + j * W::kBytes, stride, kInputs, kLanes, x + i, x_stride, y + j, y_stride, i == 0);
    }
    for (; j < n; j += kLanes)
      add_inputs<W, R, 0>(rows + j * W::kBytes, stride, inputs, min_of(kLanes, n - j), x + i, x_stride, y + j, y_stride, i == 0);
  }
}

template <class W>
void dot_columns(const void* weights, size_t stride, size_t n, size_t k, const float* x, size_t x_stride, size_t rows, float* y,
                 size_t y_stride) {
  const char* w = static_cast<const char*>(weights);
  with_rows(rows, [&](auto r) HWY_ATTR { dot_columns_fixed<W, decltype(r)::value>(w, stride, n, k, x, x_stride, y, y_stride); });
}

/// One stored row as f32.
template <class W, int V = 0>
HWY_INLINE void widen_unit(const char* row, size_t i, Vec* part) {
  part[V] = weight_part<W, V>(row, i);
  if constexpr (V + 1 < kVectors) widen_unit<W, V + 1>(row, i, part);
}
template <class W>
void widen(const void* weights, size_t n, float* y) {
  const char* row = static_cast<const char*>(weights);
  if constexpr (kIsDecoded<W>) {
    decode_row(W(), row, n, y);
  } else {
    size_t i = 0;
    for (; i + kBlock <= n; i += kBlock) {
      Vec part[kVectors];  // all of them before the first store, which could change what they are read from
      widen_unit<W>(row, i, part);
      for (int v = 0; v < kVectors; ++v) store(part[v], y + i + size_t(v) * kLanes);
    }
    if constexpr (!W::kIsBlock) {
      for (; i < n; i += kLanes) store_up_to(weight_load_up_to<W>(row + i * W::kBytes, n - i), y + i, n - i);
    }
  }
}

}  // namespace
}  // namespace vitrine
