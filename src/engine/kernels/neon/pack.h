#pragma once
// Blocks of 32 weights on Arm, for simd/dot_int8.h.
#include "kernels/neon/bytes.h"
#include "kernels/simd/pack_form.h"

namespace vitrine {
namespace {

/// 16 where bit i of `bits` is set, for byte i.
HWY_INLINE uint8x16_t sixteen_by_bit(uint16_t bits) {
  const uint8x16_t bytes = vcombine_u8(vdup_n_u8(uint8_t(bits)), vdup_n_u8(uint8_t(bits >> 8)));
  const uint8x16_t own = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  return vandq_u8(vtstq_u8(bytes, own), vdupq_n_u8(16));
}

/// One output. All bytes are signed.
template <DType kType>
struct Pack {
  static constexpr PackForm kForm = pack_form<kType>();
  static constexpr bool kSigned = true;
  static constexpr int kOffset = 0;
  static constexpr size_t kOutputs = 1, kBytes = kForm.bytes;
  using Sum = float32x4_t;
  struct Row {
    Bytes q;
    float scale;
    float32x4_t sum;
    HWY_INLINE Row(const ActivationBlock& b, size_t part)
        : q(bytes_at(b.q + part * kBlock)), scale(b.scale[part]), sum(vdupq_n_f32(0)) {
      if constexpr (kForm.minimum) sum = vsetq_lane_f32(b.sum[2 * part] + b.sum[2 * part + 1], sum, 0);
    }
  };
  Bytes q;
  float scale, minimum;
  Pack() = default;
  HWY_INLINE Pack(const char* first, const char*) {
    const auto* block = reinterpret_cast<const uint8_t*>(first);
    scale = kType == DType::mxfp4 ? BlockMXFP4::scale_of(*block) : half_at(block);
    if constexpr (kForm.minimum) minimum = half_at(block + 2);
    if constexpr (kForm.nibbles == 0) {
      q = bytes_at(block + 2);
    } else {
      const uint8x16_t both = vld1q_u8(block + kForm.nibbles);
      uint8x16_t low = vandq_u8(both, vdupq_n_u8(15)), high = vshrq_n_u8(both, 4);
      if constexpr (kForm.fifth != 0) {
        uint16_t bits[2];
        memcpy(bits, block + kForm.fifth, sizeof bits);
        low = vorrq_u8(low, sixteen_by_bit(bits[0]));
        high = vorrq_u8(high, sixteen_by_bit(bits[1]));
      }
      if constexpr (kForm.table != nullptr) {
        const int8x16_t table = vld1q_s8(kForm.table);
        q = {vqtbl1q_s8(table, low), vqtbl1q_s8(table, high)};
      } else {
        q = {vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(high)};
        if constexpr (kForm.offset != 0) q = less(q, all_bytes(kForm.offset));
      }
    }
  }
  static HWY_INLINE float of_output(float number, size_t) { return number; }
  static HWY_INLINE Sum zero() { return vdupq_n_f32(0); }
  HWY_INLINE Sum add_to(Sum sum, const Row& x) const {
    sum = add_part(sum, q, x.q, scale * x.scale);
    if constexpr (kForm.minimum) sum = vfmaq_n_f32(sum, x.sum, minimum);
    return sum;
  }
  static HWY_INLINE void store(Sum sum, float* y, size_t) { *y = sum_of(Vec{sum}); }
};
/// Packs at a time for R rows: R * packs sums, and the bytes of each pack, in 32 registers.
template <int R>
constexpr int packs_at_a_time() {
  return R <= 4 ? 4 : 2;
}

}  // namespace
}  // namespace vitrine
