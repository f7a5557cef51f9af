#pragma once
// Optimizer steps in one pass over parameter, gradient and moments: they run at the memory's speed. Formulas:
// kernels/reference/optimizer.h.
#include <math.h>  // sqrtf: std::sqrt is an inline function, see vec.h

#include "kernels/simd/bf16.h"

namespace vitrine {
namespace {

/// Where moments lie: kLanes of them from place i on, or as many as there are.
struct MomentsF32 {
  float *m, *v;
  Vec first(size_t i, size_t here) const { return load_up_to(m + i, here); }
  Vec second(size_t i, size_t here) const { return load_up_to(v + i, here); }
  void store_both(Vec first, Vec second, size_t i, size_t here) const {
    store_up_to(first, m + i, here);
    store_up_to(second, v + i, here);
  }
};
struct MomentsBf16 {
  using Bits = hn::RebindToUnsigned<Tag>;
  uint16_t *m, *v;
  uint32_t place, seed;

  Vec first(size_t i, size_t here) const { return widened(m + i, here); }
  Vec second(size_t i, size_t here) const { return widened(v + i, here); }
  void store_both(Vec first, Vec second, size_t i, size_t here) const {
    const auto at = hn::Iota(Bits(), place + uint32_t(i));
    auto h = hn::Add(hn::Mul(at, hn::Set(Bits(), 0x9E3779B1u)), hn::Set(Bits(), seed));
    h = hn::Mul(hn::Xor(h, hn::ShiftRight<16>(h)), hn::Set(Bits(), 0x85EBCA6Bu));
    h = hn::Mul(hn::Xor(h, hn::ShiftRight<13>(h)), hn::Set(Bits(), 0xC2B2AE35u));
    h = hn::Xor(h, hn::ShiftRight<16>(h));
    store_halves(rounded(first, hn::And(h, hn::Set(Bits(), 0xffff))), m + i, here);
    store_halves(rounded(second, hn::ShiftRight<16>(h)), v + i, here);
  }

 private:
  static Vec widened(const uint16_t* p, size_t here) {
    return weight_load_up_to<WeightBf16>(reinterpret_cast<const char*>(p), here);
  }
  static hn::Vec<IntTag> rounded(Vec x, hn::Vec<Bits> noise) {
    return hn::BitCast(IntTag(), hn::ShiftRight<16>(hn::Add(hn::BitCast(Bits(), x), noise)));
  }
};

template <class Moments>
HWY_INLINE void adamw_with(float* w, const float* g, const Moments moments, size_t n, float lr, float beta1, float beta2,
                           float eps, float weight_decay, float bias1, float bias2, float grad_scale) {
  const Vec keep = broadcast(1.0f - lr * weight_decay), rate = broadcast(lr / bias1), root = broadcast(1.0f / sqrtf(bias2)),
            fresh1 = broadcast(1.0f - beta1), old2 = broadcast(beta2), fresh2 = broadcast(1.0f - beta2), small = broadcast(eps),
            factor = broadcast(grad_scale), most = broadcast(0x1.fcp127f);  // kLargestMoment
  for (size_t i = 0; i < n; i += kLanes) {
    const size_t here = n - i;
    const Vec slope = hn::Mul(load_up_to(g + i, here), factor);
    const Vec m_old = moments.first(i, here);
    const Vec m_new = hn::MulAdd(fresh1, hn::Sub(slope, m_old), m_old);
    const Vec v_new = hn::Min(hn::MulAdd(old2, moments.second(i, here), hn::Mul(hn::Mul(fresh2, slope), slope)), most);
    const Vec below = hn::MulAdd(hn::Sqrt(v_new), root, small);
    const Vec w_new = hn::NegMulAdd(rate, hn::Div(m_new, below), hn::Mul(keep, load_up_to(w + i, here)));
    moments.store_both(m_new, v_new, i, here);
    store_up_to(w_new, w + i, here);
  }
}
void adamw(float* w, const float* g, float* m, float* v, size_t n, float lr, float beta1, float beta2, float eps,
           float weight_decay, float bias1, float bias2, float grad_scale) {
  adamw_with(w, g, MomentsF32{m, v}, n, lr, beta1, beta2, eps, weight_decay, bias1, bias2, grad_scale);
}
void adamw_bf16(float* w, const float* g, uint16_t* m, uint16_t* v, size_t n, float lr, float beta1, float beta2, float eps,
                float weight_decay, float bias1, float bias2, float grad_scale, uint32_t place, uint32_t seed) {
  adamw_with(w, g, MomentsBf16{m, v, place, seed}, n, lr, beta1, beta2, eps, weight_decay, bias1, bias2, grad_scale);
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
#if HWY_HAVE_FLOAT64
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
#else
  double sum = 0;
  size_t i = 0;
#endif
  for (; i < n; ++i) sum += double(x[i]) * double(x[i]);
  return sum;
}

}  // namespace
}  // namespace vitrine
