#pragma once
// The activations, the gate of GeGLU/SwiGLU (arXiv:2002.05202), the soft cap, and sums, with their gradients.
// Definition in plain loops, over the scalar.
#include <cmath>
#include <cstddef>
#include <numbers>

#include "kernels/types.h"

namespace vitrine {

/// Constants of the tanh form of GELU (arXiv:1606.08415): u = sqrt(2/pi) (x + 0.044715 x^3).
template <class T>
inline constexpr T kGeluSlope = T(0.79788456080286535588);
template <class T>
inline constexpr T kGeluCubic = T(0.044715);
/// The sigmoid form of GELU (the same, section 2): x s(1.702 x).
template <class T>
inline constexpr T kQuickGeluSlope = T(1.702);

/// f(x). The forms below are the textbook's without its cancellation for negative x:
/// 0.5 x (1 + tanh u) = x / (1 + exp(-2u));  0.5 x (1 + erf(x / sqrt 2)) = 0.5 x erfc(-x / sqrt 2).
template <class T>
T activation_value(Activation f, T x) {
  switch (f) {
    case Activation::none: return x;
    case Activation::relu: return x > 0 || x != x ? x : T(0);  // NaN stays NaN
    case Activation::gelu_tanh: {
      const T u = kGeluSlope<T> * (x + kGeluCubic<T> * x * x * x);
      return x / (1 + std::exp(-2 * u));
    }
    case Activation::gelu_exact: return T(0.5) * x * std::erfc(-x / std::numbers::sqrt2_v<T>);
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::sigmoid: return 1 / (1 + std::exp(-x));
    case Activation::relu_squared: return x > 0 || x != x ? x * x : T(0);
    case Activation::quick_gelu: return x / (1 + std::exp(-kQuickGeluSlope<T> * x));
    case Activation::tanh: return std::tanh(x);
  }
  return x;
}

/// f'(x). ReLU's derivative at 0 is 0.
template <class T>
T activation_derivative(Activation f, T x) {
  switch (f) {
    case Activation::none: return 1;
    case Activation::relu: return x > 0 ? T(1) : T(0);
    case Activation::gelu_tanh: {  // f = x s(2u), s the logistic function: f' = s + x s (1 - s) 2u'
      const T u = kGeluSlope<T> * (x + kGeluCubic<T> * x * x * x);
      const T s = 1 / (1 + std::exp(-2 * u)), other = 1 / (1 + std::exp(2 * u));
      return s + x * s * other * 2 * kGeluSlope<T> * (1 + 3 * kGeluCubic<T> * x * x);
    }
    case Activation::gelu_exact: {  // f = x Phi(x): f' = Phi + x phi
      const T density = std::exp(T(-0.5) * x * x) / std::sqrt(2 * std::numbers::pi_v<T>);
      return T(0.5) * std::erfc(-x / std::numbers::sqrt2_v<T>) + x * density;
    }
    case Activation::silu: {
      const T s = 1 / (1 + std::exp(-x)), other = 1 / (1 + std::exp(x));
      return s + x * s * other;
    }
    case Activation::sigmoid: return 1 / (1 + std::exp(-x)) / (1 + std::exp(x));
    case Activation::relu_squared: return x > 0 ? 2 * x : T(0);
    case Activation::quick_gelu: {
      const T u = kQuickGeluSlope<T> * x, s = 1 / (1 + std::exp(-u)), other = 1 / (1 + std::exp(u));
      return s + u * s * other;
    }
    case Activation::tanh: {
      const T t = std::tanh(x);
      return (1 - t) * (1 + t);
    }
  }
  return 1;
}

template <class T>
void activate_reference(Activation f, const T* x, size_t n, T* y) {
  for (size_t i = 0; i < n; ++i) y[i] = activation_value(f, x[i]);
}
/// dx += f'(x) dy
template <class T>
void activate_backward(Activation f, const T* x, const T* dy, size_t n, T* dx) {
  for (size_t i = 0; i < n; ++i) dx[i] += activation_derivative(f, x[i]) * dy[i];
}

/// y = f(gate) * up
template <class T>
void gate_reference(Activation f, const T* gate, const T* up, size_t n, T* y) {
  for (size_t i = 0; i < n; ++i) y[i] = activation_value(f, gate[i]) * up[i];
}
/// dgate += f'(gate) up dy,  dup += f(gate) dy
template <class T>
void gate_backward(Activation f, const T* gate, const T* up, const T* dy, size_t n, T* dgate, T* dup) {
  for (size_t i = 0; i < n; ++i) {
    const T g = dy[i], u = up[i];
    dgate[i] += activation_derivative(f, gate[i]) * u * g;
    dup[i] += activation_value(f, gate[i]) * g;
  }
}

/// y = cap tanh(x / cap): the scores and logits of Gemma 2 (arXiv:2408.00118, section 2).
template <class T>
void softcap_reference(const T* x, T cap, size_t n, T* y) {
  for (size_t i = 0; i < n; ++i) y[i] = cap * std::tanh(x[i] / cap);
}
/// dx += (1 - tanh(x / cap)^2) dy; x is the value before the cap.
template <class T>
void softcap_backward(const T* x, T cap, const T* dy, size_t n, T* dx) {
  for (size_t i = 0; i < n; ++i) {
    const T t = std::tanh(x[i] / cap);
    dx[i] += (1 - t) * (1 + t) * dy[i];
  }
}

template <class T>
void add_reference(const T* a, const T* b, size_t n, T* y) {
  for (size_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}
template <class T>
void scale_reference(const T* x, T factor, size_t n, T* y) {
  for (size_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

}  // namespace vitrine
