#pragma once
// Gradients as the table has them: set where `add` is false, else added to what is there. The formulas stand beside their
// forward, in activation.h, norm.h and rope.h, and add; here is what they lack.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/reference/activation.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/rope.h"

namespace vitrine {

/// Zeros where a sum begins.
template <class T>
T* begun(T* dx, size_t n, bool add) {
  if (dx != nullptr && !add) std::fill(dx, dx + n, T(0));
  return dx;
}

template <class T>
void rms_norm_gradient(const T* x, const T* w, T offset, T inv_rms, const T* dy, size_t d, T* dx, T* dw, bool add) {
  rms_norm_backward(x, w, offset, inv_rms, dy, d, begun(dx, d, add), dw);
}
template <class T>
void layer_norm_gradient(const T* x, const T* w, T mean, T inv_std, const T* dy, size_t d, T* dx, T* dw, T* db, bool add) {
  layer_norm_backward(x, w, mean, inv_std, dy, d, begun(dx, d, add), dw, db);
}
template <class T>
void rope_gradient(const T* dy, const T* cos, const T* sin, RopeLayout layout, size_t n_heads, size_t head_dim, size_t rotary_dim,
                   T* dx, bool add) {
  rope_backward(dy, cos, sin, layout, n_heads, head_dim, rotary_dim, begun(dx, n_heads * head_dim, add));
}
template <class T>
void activate_gradient(Activation f, const T* x, const T* dy, size_t n, T* dx, bool add) {
  activate_backward(f, x, dy, n, begun(dx, n, add));
}
/// dgate or dup null: not wanted.
template <class T>
void gate_gradient(Activation f, const T* gate, const T* up, const T* dy, size_t n, T* dgate, T* dup, bool add) {
  for (size_t i = 0; i < n; ++i) {
    if (dgate) dgate[i] = (add ? dgate[i] : T(0)) + activation_derivative(f, gate[i]) * up[i] * dy[i];
    if (dup) dup[i] = (add ? dup[i] : T(0)) + activation_value(f, gate[i]) * dy[i];
  }
}
template <class T>
void softcap_gradient(const T* x, T cap, const T* dy, size_t n, T* dx, bool add) {
  softcap_backward(x, cap, dy, n, begun(dx, n, add));
}

/// y += factor x
template <class T>
void add_scaled_reference(const T* x, T factor, size_t n, T* y) {
  for (size_t i = 0; i < n; ++i) y[i] += factor * x[i];
}
template <class T>
T dot_reference(const T* a, const T* b, size_t n) {
  T sum = 0;
  for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// z, capped logits of a row, becomes the gradient of unit · log(sum of exp of the row) by the logits before the cap:
///   unit exp(z - lse) (1 - (z / cap)²),  without the bracket if cap is 0.
template <class T>
void loss_gradient_reference(T* z, size_t n, T lse, T unit, T cap) {
  for (size_t i = 0; i < n; ++i) {
    const T t = cap != 0 ? z[i] / cap : T(0);
    z[i] = unit * std::exp(z[i] - lse) * (1 - t) * (1 + t);
  }
}

/// One query row of attention: s, scores before scale and cap, become the pattern p, and dp, the pattern's gradient, that of
/// s, for the keys first <= j < last of n, which the row sees; the others get zeros. `work` has room for n elements.
///   v = cap tanh(scale s / cap), or scale s if cap is 0;  p = softmax(v),
///   ds = p (dp - sum of p dp) scale (1 - (v / cap)²).  arXiv:2205.14135 section 3.1.
/// dp is taken from that of the largest p on: where p is all on one key, ds is 0, and rounding of large dp must not be left.
template <class T>
void pattern_gradient_reference(T* s, T* dp, size_t first, size_t last, size_t n, T scale, T cap, T* work) {
  size_t top = first;
  for (size_t j = first; j < last; ++j) {
    work[j] = cap != 0 ? cap * std::tanh(scale * s[j] / cap) : scale * s[j];
    if (work[j] > work[top]) top = j;
  }
  T total = 0, along = 0, at_top = top < last ? dp[top] : T(0);
  for (size_t j = first; j < last; ++j) {
    s[j] = std::exp(work[j] - work[top]);
    total += s[j];
    along += s[j] * (dp[j] - at_top);
  }
  for (size_t j = 0; j < n; ++j) {
    if (j < first || j >= last) {
      s[j] = dp[j] = 0;
      continue;
    }
    const T t = cap != 0 ? work[j] / cap : T(0);
    s[j] /= total;
    dp[j] = s[j] * (dp[j] - at_top - along / total) * scale * (1 - t) * (1 + t);
  }
}

}  // namespace vitrine
