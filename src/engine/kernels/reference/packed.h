#pragma once
// Products of two packed matrices. Definition in plain loops; packed, a is [rows, depth] and b is [columns, depth], in f32.
#include <cstddef>

#include "base/dtype.h"

namespace vitrine {

/// Element (i, t) of a matrix of lines: x[i stride + t], or x[t stride + i] if the lines lie beside one another. kRound: as
/// the nearest bf16.
template <bool kRound>
void pack_lines_reference(const float* x, size_t stride, bool beside, size_t n, size_t depth, void* packed) {
  auto* out = static_cast<float*>(packed);
  for (size_t i = 0; i < n; ++i)
    for (size_t t = 0; t < depth; ++t) {
      const float value = beside ? x[t * stride + i] : x[i * stride + t];
      out[i * depth + t] = kRound ? bf16_to_f32(f32_to_bf16(value)) : value;
    }
}
template <bool kRound>
void pack_a_reference(const float* a, size_t stride, bool transposed, size_t rows, size_t depth, void* packed) {
  pack_lines_reference<kRound>(a, stride, transposed, rows, depth, packed);
}
template <bool kRound>
void pack_b_reference(const float* b, size_t stride, bool transposed, size_t depth, size_t columns, void* packed) {
  pack_lines_reference<kRound>(b, stride, !transposed, columns, depth, packed);
}

/// c[i][j] = or += sum over t < depth of a[i][t] b[t][j], one t after the other.
inline void packed_multiply_reference(const void* a, bool /*a_turned*/, const void* b, size_t rows, size_t columns, size_t depth,
                                      float* c, size_t c_stride, bool add, const ReadNext&) {
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (size_t t = 0; t < depth; ++t)
        sum += static_cast<const float*>(a)[i * depth + t] * static_cast<const float*>(b)[j * depth + t];
      c[i * c_stride + j] = add ? c[i * c_stride + j] + sum : sum;
    }
}

}  // namespace vitrine
