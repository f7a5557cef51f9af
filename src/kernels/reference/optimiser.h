#pragma once
// One step of an optimiser over n neighbouring parameters, and the sum a gradient's norm is made of. Definition in plain
// loops, over the scalar.
#include <cmath>
#include <cstddef>

namespace vitrine {

/// AdamW (arXiv:1412.6980; the decay decoupled from the gradient: arXiv:1711.05101), with g = grad_scale · g:
///   w = (1 - lr weight_decay) w,   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g²,
///   w = w - lr (m / bias1) / (sqrt(v / bias2) + eps);   bias_i = 1 - beta_i^t, t = 1 in the first step.
template <class T>
void adamw_reference(T* w, const T* g, T* m, T* v, size_t n, T lr, T beta1, T beta2, T eps, T weight_decay, T bias1, T bias2,
                     T grad_scale) {
  const T keep = 1 - lr * weight_decay, rate = lr / bias1, root = std::sqrt(bias2);
  for (size_t i = 0; i < n; ++i) {
    const T slope = g[i] * grad_scale;
    m[i] += (1 - beta1) * (slope - m[i]);
    v[i] = beta2 * v[i] + (1 - beta2) * slope * slope;
    w[i] = keep * w[i] - rate * m[i] / (std::sqrt(v[i]) / root + eps);
  }
}

/// Gradient descent:  g = grad_scale · g + weight_decay w;  momentum = factor momentum + g, w = w - lr momentum, or without
/// momentum (null) w = w - lr g.
template <class T>
void sgd_reference(T* w, const T* g, T* momentum, size_t n, T lr, T factor, T weight_decay, T grad_scale) {
  for (size_t i = 0; i < n; ++i) {
    T slope = g[i] * grad_scale + weight_decay * w[i];
    if (momentum != nullptr) slope = momentum[i] = factor * momentum[i] + slope;
    w[i] -= lr * slope;
  }
}

/// Sum of squares in double, one number after the other.
template <class T>
double sum_of_squares_reference(const T* x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace vitrine
