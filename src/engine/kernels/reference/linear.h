#pragma once
// Products of rows with a weight matrix, int8 activations, and panels. Definition in plain loops, over the scalar.
// Weights may be of any matrix type, and f64 for gradient checks.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "kernels/table.h"

namespace vitrine {

/// Element i of a stored weight row as T.
template <class T>
T weight_at(DType type, const void* row, size_t i) {
  if (type == DType::f64) return T(static_cast<const double*>(row)[i]);
  return T(element_at(type, row, i));
}

/// Elements [first, first + n) of a stored row.
template <class T>
void widen_reference(DType type, const void* row, size_t first, size_t n, T* y) {
  if (is_decoded(type)) {  // a block at a time: one element costs its whole block
    float block[kLargestBlock];
    const size_t size = block_elements(type);
    for (size_t i = 0; i < n; ++i) {
      const size_t at = (first + i) % size;
      if (i == 0 || at == 0) decode_block(type, static_cast<const char*>(row) + row_bytes(type, first + i - at), block);
      y[i] = T(block[at]);
    }
  } else {
    for (size_t i = 0; i < n; ++i) y[i] = weight_at<T>(type, row, first + i);
  }
}

/// y[r][j] = sum over i < k of x[r][i] w[j][i]; weight row j begins `stride` bytes after row j - 1.
template <class T>
void dot_rows_reference(DType type, const void* w, size_t stride, size_t n, size_t k, const T* x, size_t x_stride, size_t rows,
                        T* y, size_t y_stride) {
  for (size_t j = 0; j < n; ++j) {
    const char* row = static_cast<const char*>(w) + j * stride;
    for (size_t r = 0; r < rows; ++r) y[r * y_stride + j] = 0;
    for (size_t i = 0; i < k; i += kLargestBlock) {
      T wide[kLargestBlock];
      const size_t n_now = std::min(kLargestBlock, k - i);
      widen_reference(type, row, i, n_now, wide);
      for (size_t r = 0; r < rows; ++r)
        for (size_t e = 0; e < n_now; ++e) y[r * y_stride + j] += x[r * x_stride + i + e] * wide[e];
    }
  }
}

/// y[r][j] = sum over i < k of x[r][i] w[i][j]; input i's row begins `stride` bytes after input i - 1's.
template <class T>
void dot_columns_reference(DType type, const void* w, size_t stride, size_t n, size_t k, const T* x, size_t x_stride, size_t rows,
                           T* y, size_t y_stride) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t j = 0; j < n; ++j) y[r * y_stride + j] = 0;
    for (size_t i = 0; i < k; ++i)
      for (size_t j = 0; j < n; ++j)
        y[r * y_stride + j] += x[r * x_stride + i] * weight_at<T>(type, static_cast<const char*>(w) + i * stride, j);
  }
}

/// c[r][j] += sum over i < depth of a[r][i] b[i][j], one i after the other.
template <class T>
void add_products_reference(const T* a, size_t a_stride, size_t rows, const T* b, size_t b_stride, size_t depth, size_t n, T* c,
                            size_t c_stride) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t i = 0; i < depth; ++i)
      for (size_t j = 0; j < n; ++j) c[r * c_stride + j] += a[r * a_stride + i] * b[i * b_stride + j];
}

/// c[r][j] = factor * sum over i < depth of a[r][i] b[i][j]
template <class T>
void set_products_reference(const T* a, size_t a_stride, size_t rows, const T* b, size_t b_stride, size_t depth, size_t n,
                            T factor, T* c, size_t c_stride) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t j = 0; j < n; ++j) c[r * c_stride + j] = 0;
  add_products_reference(a, a_stride, rows, b, b_stride, depth, n, c, c_stride);
  for (size_t r = 0; r < rows; ++r)
    for (size_t j = 0; j < n; ++j) c[r * c_stride + j] *= factor;
}

/// Per 32 values: scale = max |x| / 127, q = x * (127 / max |x|) to the nearest integer, ties to even.
/// Blocks whose largest value is below 1e-30 become zeros (the reciprocal would overflow).
inline void quantize_int8_reference(const float* x, size_t n, ActivationBlock* y) {
  for (size_t b = 0; b < activation_blocks(n) * (ActivationBlock::kElements / kBlock); ++b) {
    ActivationBlock& block = y[b * kBlock / ActivationBlock::kElements];
    const size_t part = b % (ActivationBlock::kElements / kBlock);
    const bool there = b * kBlock < n;
    float largest = 0;
    bool finite = true;
    for (size_t i = 0; i < kBlock && there; ++i) {
      finite &= std::isfinite(x[b * kBlock + i]);
      largest = std::max(largest, std::fabs(x[b * kBlock + i]));
    }
    const bool usable = finite && largest >= 1e-30f;
    const float inverse = usable ? 127.0f / largest : 0.0f;
    const float scale = !finite ? std::numeric_limits<float>::quiet_NaN() : usable ? largest / 127.0f : 0.0f;
    block.scale[part] = scale;
    for (size_t half = 0; half < 2; ++half) {
      int sum = 0;
      for (size_t i = half * 16; i < half * 16 + 16; ++i) {
        const int q = usable ? int(std::nearbyint(x[b * kBlock + i] * inverse)) : 0;
        block.q[part * kBlock + i] = int8_t(q);
        sum += q;
      }
      block.sum[2 * part + half] = scale * float(sum);
    }
  }
}

/// y[r][j] = sum over groups g of 16 of w scale * x scale * sum of w.q x.q, less w minimum * x sum; sums of q are exact in
/// integers.
template <class T>
void dot_rows_int8_reference(DType type, const void* w, size_t stride, size_t n, size_t k, const ActivationBlock* x,
                             size_t x_stride, size_t rows, T* y, size_t y_stride) {
  const size_t size = block_elements(type);
  for (size_t j = 0; j < n; ++j) {
    for (size_t r = 0; r < rows; ++r) y[r * y_stride + j] = 0;
    for (size_t i = 0; i < k; i += size) {
      int8_t q[kLargestBlock];
      float scale[kLargestBlock / 16], minimum[kLargestBlock / 16];
      block_integers(type, static_cast<const char*>(w) + j * stride + row_bytes(type, i), q, scale, minimum);
      for (size_t r = 0; r < rows; ++r)
        for (size_t g = 0; g < size / 16; ++g) {
          const ActivationBlock& block = x[r * x_stride + (i + 16 * g) / kLargestBlock];
          const size_t at = (i + 16 * g) % kLargestBlock;
          int dot = 0;
          for (size_t e = 0; e < 16; ++e) dot += int(q[16 * g + e]) * int(block.q[at + e]);
          y[r * y_stride + j] += T(scale[g]) * T(block.scale[at / kBlock]) * T(dot) - T(minimum[g]) * T(block.sum[at / 16]);
        }
    }
  }
}

}  // namespace vitrine
