#pragma once
// Rotary position embedding (arXiv:2104.09864): each pair of components of a head is a point in the plane, turned by an
// angle proportional to the position. Definition in plain loops, over the scalar.
#include <cstddef>

#include "kernels/types.h"

namespace vitrine {

/// The two components of pair i under `layout`.
struct RopePair {
  size_t a, b;
};
inline RopePair rope_pair(RopeLayout layout, size_t i, size_t rotary_dim) {
  if (layout == RopeLayout::halves) return {i, i + rotary_dim / 2};
  return {2 * i, 2 * i + 1};
}

/// For each head x + h * head_dim and pair i < rotary_dim / 2:  (a, b) -> (a cos - b sin, b cos + a sin).
/// cos, sin [rotary_dim / 2] of the row's position. Components from rotary_dim on are copied. y may be x.
template <class T>
void rope_reference(const T* x, const T* cos, const T* sin, RopeLayout layout, size_t n_heads, size_t head_dim, size_t rotary_dim,
                    T* y) {
  for (size_t h = 0; h < n_heads; ++h, x += head_dim, y += head_dim) {
    for (size_t i = 0; i < rotary_dim / 2; ++i) {
      const RopePair p = rope_pair(layout, i, rotary_dim);
      const T a = x[p.a], b = x[p.b];
      y[p.a] = a * cos[i] - b * sin[i];
      y[p.b] = b * cos[i] + a * sin[i];
    }
    for (size_t i = rotary_dim; i < head_dim; ++i) y[i] = x[i];
  }
}

/// dx += dy turned back by the same angles (a rotation's transpose is its inverse). dx must not be dy.
template <class T>
void rope_backward(const T* dy, const T* cos, const T* sin, RopeLayout layout, size_t n_heads, size_t head_dim, size_t rotary_dim,
                   T* dx) {
  for (size_t h = 0; h < n_heads; ++h, dy += head_dim, dx += head_dim) {
    for (size_t i = 0; i < rotary_dim / 2; ++i) {
      const RopePair p = rope_pair(layout, i, rotary_dim);
      dx[p.a] += dy[p.a] * cos[i] + dy[p.b] * sin[i];
      dx[p.b] += dy[p.b] * cos[i] - dy[p.a] * sin[i];
    }
    for (size_t i = rotary_dim; i < head_dim; ++i) dx[i] += dy[i];
  }
}

}  // namespace vitrine
