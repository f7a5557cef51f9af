#pragma once
// One step of an optimizer over n neighboring parameters, and the sum a gradient's norm is made of. Definition in plain
// loops, over the scalar.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace vitrine {

/// AdamW (arXiv:1412.6980; the decay decoupled from the gradient: arXiv:1711.05101), with g = grad_scale · g:
///   w = (1 - lr weight_decay) w,   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g²,
///   w = w - lr (m / bias1) / (sqrt(v / bias2) + eps);   bias_i = 1 - beta_i^t, t = 1 in the first step.
/// v stays at kLargestMoment or below: the square of a gradient above 1e19 leaves f32, and an infinite v would never come back.
inline constexpr float kLargestMoment = 0x1.fcp127f;  // below the largest bf16, so that rounding up leaves it finite
template <class T>
void adamw_reference(T* w, const T* g, T* m, T* v, size_t n, T lr, T beta1, T beta2, T eps, T weight_decay, T bias1, T bias2,
                     T grad_scale) {
  const T keep = 1 - lr * weight_decay, rate = lr / bias1, root = std::sqrt(bias2);
  for (size_t i = 0; i < n; ++i) {
    const T slope = g[i] * grad_scale;
    m[i] += (1 - beta1) * (slope - m[i]);
    v[i] = std::min(beta2 * v[i] + (1 - beta2) * slope * slope, static_cast<T>(kLargestMoment));
    w[i] = keep * w[i] - rate * m[i] / (std::sqrt(v[i]) / root + eps);
  }
}

/// 32 random bits for a place: MurmurHash3's last mixing (Austin Appleby, public domain) of place and seed.
inline uint32_t random_bits(uint32_t place, uint32_t seed) {
  uint32_t h = place * 0x9E3779B1u + seed;
  h = (h ^ h >> 16) * 0x85EBCA6Bu;
  h = (h ^ h >> 13) * 0xC2B2AE35u;
  return h ^ h >> 16;
}
/// x in bf16: the lower 16 bits are what is left, and as often as they are part of 2^16 it is rounded away from zero. Right on
/// average, and exact where nothing is left.
inline uint16_t round_at_random(float x, uint32_t bits) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + (bits & 0xffff)) >> 16);
}
/// AdamW with moments in bf16, which are rounded after the step has used them; the low half of a place's random bits is m's,
/// the high half v's.
inline void adamw_bf16_reference(float* w, const float* g, uint16_t* m, uint16_t* v, size_t n, float lr, float beta1, float beta2,
                                 float eps, float weight_decay, float bias1, float bias2, float grad_scale, uint32_t place,
                                 uint32_t seed) {
  for (size_t i = 0; i < n; ++i) {
    float m_new = bf16_to_f32(m[i]), v_new = bf16_to_f32(v[i]);
    adamw_reference(w + i, g + i, &m_new, &v_new, 1, lr, beta1, beta2, eps, weight_decay, bias1, bias2, grad_scale);
    const uint32_t bits = random_bits(place + static_cast<uint32_t>(i), seed);
    m[i] = round_at_random(m_new, bits);
    v[i] = round_at_random(v_new, bits >> 16);
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
