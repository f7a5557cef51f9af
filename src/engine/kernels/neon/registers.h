#pragma once
// Parts of blocks of 256 as bytes in registers on Arm, for simd/block_registers.h; avx512/registers.h says what each routine
// gives.
#include "kernels/neon/bytes.h"

namespace vitrine {
namespace {

constexpr int kPartsAtOnce = 1;  // of 32 weights in a register

/// Towards the lowest bit, or away from it if kShift is negative.
template <int kShift>
HWY_INLINE uint8x16_t shifted(uint8x16_t v) {
  if constexpr (kShift > 0) return vshrq_n_u8(v, kShift);
  if constexpr (kShift < 0) return vshlq_n_u8(v, -kShift);
  return v;
}
template <int kShift>
HWY_INLINE Bytes shifted_and_masked(const uint8_t* from, int mask) {
  const uint8x16_t bits = vdupq_n_u8(uint8_t(mask));
  return {vreinterpretq_s8_u8(vandq_u8(shifted<kShift>(vld1q_u8(from)), bits)),
          vreinterpretq_s8_u8(vandq_u8(shifted<kShift>(vld1q_u8(from + 16)), bits))};
}
HWY_INLINE Bytes either(Bytes a, Bytes b) { return {vorrq_s8(a.low, b.low), vorrq_s8(a.high, b.high)}; }

template <class F, int C>
HWY_INLINE Bytes field(const uint8_t* block, int mask) {
  constexpr auto kPlace = F::of(C);
  return shifted_and_masked<kPlace.shift>(block + kPlace.offset, mask);
}
template <int C, int kValue>
HWY_INLINE Bytes add_bit(Bytes q, const uint8_t* from) {
  return either(q, shifted_and_masked<C - __builtin_ctz(kValue)>(from, kValue));
}
template <int C>
HWY_INLINE Bytes nibbles_by_16(const uint8_t* from) {
  const uint8x16_t both = vld1q_u8(from + 16 * C);
  return {vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15))), vreinterpretq_s8_u8(vshrq_n_u8(both, 4))};
}
HWY_INLINE Bytes look_up(const int8_t (&table)[16], Bytes nibbles) {
  const int8x16_t values = vld1q_s8(table);
  return {vqtbl1q_s8(values, vreinterpretq_u8_s8(nibbles.low)), vqtbl1q_s8(values, vreinterpretq_u8_s8(nibbles.high))};
}

using Sixteen = int8x16_t;
HWY_INLINE Sixteen no_bytes() { return vdupq_n_s8(0); }
HWY_INLINE Sixteen sixteen_at(const uint8_t* p) { return vreinterpretq_s8_u8(vld1q_u8(p)); }
HWY_INLINE Sixteen two_words(uint64_t first, uint64_t second) { return vcombine_s8(vcreate_s8(first), vcreate_s8(second)); }
HWY_INLINE Sixteen low_nibbles(Sixteen v) { return vandq_s8(v, vdupq_n_s8(15)); }
HWY_INLINE Sixteen high_nibbles(Sixteen v) { return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(v), 4)); }
HWY_INLINE Sixteen less(Sixteen v, int value) { return vsubq_s8(v, vdupq_n_s8(int8_t(value))); }
HWY_INLINE Sixteen second_half(Sixteen v) { return vextq_s8(v, v, 8); }
HWY_INLINE Sixteen six_bit_pairs(const uint8_t* block) {
  uint64_t eight, four = 0;
  memcpy(&eight, block + 4, 8);
  memcpy(&four, block + 12, 4);
  const uint64_t first = eight & 0x3f3f3f3f3f3f3f3f;
  const uint64_t rest = ((four | four << 28) & 0x0f0f0f0f0f0f0f0f) | (eight >> 2 & 0x3030303030303030);
  const uint32x4_t words = vreinterpretq_u32_s8(two_words(first, rest));
  return vreinterpretq_s8_u32(vzip1q_u32(words, vextq_u32(words, words, 2)));
}
/// The eight nibbles of `low`, with two bits of `high` above each.
HWY_INLINE Sixteen six_bits(uint32_t low, uint16_t high) {
  const uint8x8_t both = vcreate_u8(low);
  const uint8x8_t nibbles = vzip1_u8(vand_u8(both, vdup_n_u8(15)), vshr_n_u8(both, 4));
  uint64_t pairs = high;  // a pair of bits to a byte
  pairs = (pairs | pairs << 24) & 0x000000ff000000ff;
  pairs = (pairs | pairs << 12) & 0x000f000f000f000f;
  pairs = (pairs | pairs << 6) & 0x0303030303030303;
  return vreinterpretq_s8_u8(vcombine_u8(vorr_u8(nibbles, vcreate_u8(pairs << 4)), vdup_n_u8(0)));
}

/// The first kGroups of the integers times the factor.
template <int kGroups>
HWY_INLINE void store_floats(Sixteen integers, float factor, float* to) {
  const int16x8_t halves[2] = {vmovl_s8(vget_low_s8(integers)), vmovl_high_s8(integers)};
  for (int i = 0; i < kGroups; i += 8) {
    const int16x8_t eight = halves[i / 8];
    vst1q_f32(to + i, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(eight))), factor));
    vst1q_f32(to + i + 4, vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(eight)), factor));
  }
}

}  // namespace
}  // namespace vitrine
