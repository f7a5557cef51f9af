#pragma once
// Optimiser steps in one pass over parameter, gradient and moments: they run at the memory's speed. Formulas:
// kernels/reference/optimiser.h.
#include <math.h>  // sqrtf: std::sqrt is an inline function, see vec.h

#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

void adamw(float* w, const float* g, float* m, float* v, size_t n, float lr, float beta1, float beta2, float eps,
           float weight_decay, float bias1, float bias2, float grad_scale) {
  const Vec keep = broadcast(1.0f - lr * weight_decay), rate = broadcast(lr / bias1), root = broadcast(1.0f / sqrtf(bias2)),
            fresh1 = broadcast(1.0f - beta1), old2 = broadcast(beta2), fresh2 = broadcast(1.0f - beta2), small = broadcast(eps),
            factor = broadcast(grad_scale);
  for (size_t i = 0; i < n; i += kLanes) {
    const size_t here = n - i;
    const Vec slope = hn::Mul(load_up_to(g + i, here), factor);
    const Vec m_old = load_up_to(m + i, here);
    const Vec m_new = hn::MulAdd(fresh1, hn::Sub(slope, m_old), m_old);
    const Vec v_new = hn::MulAdd(old2, load_up_to(v + i, here), hn::Mul(hn::Mul(fresh2, slope), slope));
    const Vec below = hn::MulAdd(hn::Sqrt(v_new), root, small);
    const Vec w_new = hn::NegMulAdd(rate, hn::Div(m_new, below), hn::Mul(keep, load_up_to(w + i, here)));
    store_up_to(m_new, m + i, here);
    store_up_to(v_new, v + i, here);
    store_up_to(w_new, w + i, here);
  }
}

void sgd(float* w, const float* g, float* momentum, size_t n, float lr, float factor, float weight_decay, float grad_scale) {
  const Vec rate = broadcast(lr), keep = broadcast(factor), decay = broadcast(weight_decay), scaled = broadcast(grad_scale);
  for (size_t i = 0; i < n; i += kLanes) {
    const size_t here = n - i;
    const Vec old = load_up_to(w + i, here);
    Vec slope = hn::MulAdd(decay, old, hn::Mul(load_up_to(g + i, here), scaled));
    if (momentum != nullptr) {
      slope = hn::MulAdd(keep, load_up_to(momentum + i, here), slope);
      store_up_to(slope, momentum + i, here);
    }
    store_up_to(hn::NegMulAdd(rate, slope, old), w + i, here);
  }
}

double sum_of_squares(const float* x, size_t n) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  constexpr size_t kWide = kLanes / 2;
  auto sum0 = hn::Zero(wide), sum1 = hn::Zero(wide);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto a = hn::PromoteTo(wide, hn::LoadU(narrow, x + i)), b = hn::PromoteTo(wide, hn::LoadU(narrow, x + i + kWide));
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(sum0, sum1)));
  for (; i < n; ++i) sum += double(x[i]) * double(x[i]);
  return sum;
}

}  // namespace
}  // namespace vitrine
