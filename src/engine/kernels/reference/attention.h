#pragma once
// One block of attention with a running softmax (arXiv:2205.14135). Definition in plain loops, over the scalar.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/table.h"

namespace vitrine {

/// For each query row, over the keys first <= j < last of the block:
///   s[j] = cap(scale * q . k[j]) + slope (j - place),  cap(s) = softcap tanh(s / softcap), or s if softcap is 0
///   m = max(largest, max s),  c = exp(largest - m)
///   total = c total + sum of exp(s[j] - m),   z = c z + sum of exp(s[j] - m) v[j],   largest = m
/// A row that sees none, or only scores of -inf, leaves its three running values as they are. Of narrow types:
/// q . k[j] = sum over groups of 32 components of scale[j] * (q . codes),  and  p v[j] = (p scale[j]) codes.
template <class T>
void attention_reference(const AttentionBlockOf<T>& b) {
  const T none = -std::numeric_limits<T>::infinity();
  for (size_t r = 0; r < b.rows; ++r) {
    const T* q = b.q + r * b.q_stride;
    T* s = b.scratch + r * kKeyBlock;
    T* z = b.z + r * b.z_stride;
    const size_t first = size_t(std::max(b.first[r], int32_t(0)));
    const size_t last = std::min(size_t(std::max(b.last[r], int32_t(0))), b.keys);
    T m = b.largest[r];
    for (size_t j = first; j < last; ++j) {
      T dot = 0;
      for (size_t c = 0; c < b.head_dim; ++c)
        dot += q[c] * (b.k_narrow.type == DType::f32 ? b.k_t[c * b.k_stride + j] : T(narrow_key(b.k_narrow, c, j)));
      dot *= b.scale;
      s[j] = b.softcap != 0 ? b.softcap * std::tanh(dot / b.softcap) : dot;
      if (b.slope != nullptr) s[j] += b.slope[r] * (T(j) - b.place[r]);
      if (s[j] > m) m = s[j];
    }
    if (first >= last) continue;
    if (m == none) {  // nothing but -inf (exp(-inf - -inf) would be NaN), unless a NaN hides among it
      bool all_numbers = true;
      for (size_t j = first; j < last; ++j) all_numbers &= s[j] == s[j];
      if (all_numbers) continue;
    }
    const T correction = b.largest[r] == none ? T(0) : std::exp(b.largest[r] - m);
    T total = b.total[r] * correction;
    for (size_t c = 0; c < b.v_dim; ++c) z[c] *= correction;
    for (size_t j = first; j < last; ++j) {
      const T p = std::exp(s[j] - m);
      total += p;
      for (size_t c = 0; c < b.v_dim; ++c)
        z[c] += p * (b.v_narrow.type == DType::f32 ? b.v[j * b.v_stride + c] : T(narrow_value(b.v_narrow, b.v_dim, c, j)));
    }
    b.total[r] = total;
    b.largest[r] = m;
  }
}

}  // namespace vitrine
