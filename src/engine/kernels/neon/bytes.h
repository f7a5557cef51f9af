#pragma once
// Products of signed bytes on Arm, four to a lane of 32 bits: by one instruction where there is one (FEAT_DotProd), else through
// sums of 16 bits. The lanes are the same either way.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

/// 32 bytes: a part of a block of 256.
struct Bytes {
  int8x16_t low, high;
};
HWY_INLINE Bytes bytes_at(const void* p) {
  const auto* bytes = static_cast<const int8_t*>(p);
  return {vld1q_s8(bytes), vld1q_s8(bytes + 16)};
}
HWY_INLINE Bytes all_bytes(int value) { return {vdupq_n_s8(int8_t(value)), vdupq_n_s8(int8_t(value))}; }
HWY_INLINE Bytes less(Bytes a, Bytes b) { return {vsubq_s8(a.low, b.low), vsubq_s8(a.high, b.high)}; }

/// sum[l] + the four products w[i] q[i] for i from 4 l on. Two products, at most 2 * 128 * 127, fit in 16 bits.
HWY_INLINE int32x4_t add_fours(int32x4_t sum, int8x16_t w, int8x16_t q) {
#ifdef __ARM_FEATURE_DOTPROD
  return vdotq_s32(sum, w, q);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(q)), high = vmull_high_s8(w, q);
  return vpadalq_s16(sum, vpaddq_s16(low, high));
#endif
}

/// sum + factor times the products of a part whose weights have one scale.
HWY_INLINE float32x4_t add_part(float32x4_t sum, Bytes w, Bytes q, float factor) {
  const int32x4_t dot = add_fours(add_fours(vdupq_n_s32(0), w.low, q.low), w.high, q.high);
  return vfmaq_n_f32(sum, vcvtq_f32_s32(dot), factor);
}
/// The same with the scales of all groups of a block of 256, of kGroup weights each, and of its activations.
template <int kGroup>
HWY_INLINE float32x4_t add_part(float32x4_t sum, Bytes w, Bytes q, const float* scale, const float* x_scale, int part) {
  if constexpr (kGroup == 32) return add_part(sum, w, q, scale[part] * x_scale[part]);
  const int32x4_t low = add_fours(vdupq_n_s32(0), w.low, q.low), high = add_fours(vdupq_n_s32(0), w.high, q.high);
  sum = vfmaq_n_f32(sum, vcvtq_f32_s32(low), scale[2 * part] * x_scale[part]);
  return vfmaq_n_f32(sum, vcvtq_f32_s32(high), scale[2 * part + 1] * x_scale[part]);
}
/// sum - the minima of the groups of a block of 256, times the sums of 16 of its activations.
template <int kGroup>
HWY_INLINE float32x4_t take_minima(float32x4_t sum, const float* minimum, const float* x_sum) {
  for (int i = 0; i < 16; i += 4) {
    float32x4_t four = vld1q_f32(minimum + (kGroup == 16 ? i : i / 8 * 4));
    if (kGroup == 32) four = i % 8 == 0 ? vzip1q_f32(four, four) : vzip2q_f32(four, four);
    sum = vfmsq_f32(sum, four, vld1q_f32(x_sum + i));
  }
  return sum;
}

}  // namespace
}  // namespace vitrine
