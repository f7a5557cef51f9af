#pragma once
// Parts of blocks of 256 as bytes in registers of 32 bytes, for simd/block_registers.h.
#include "kernels/simd/dot_int8.h"
#include "kernels/simd/place.h"
#include "kernels/simd/sixteen.h"

namespace vitrine {
namespace {

using Bytes = __m256i;
constexpr int kPartsAtOnce = 1;
HWY_INLINE Bytes all_bytes(int value) { return _mm256_set1_epi8(char(value)); }

template <int kShift>
HWY_INLINE Bytes shifted(Bytes v) {
  if constexpr (kShift > 0) return _mm256_srli_epi16(v, kShift);
  if constexpr (kShift < 0) return _mm256_slli_epi16(v, -kShift);
  return v;
}
template <class F, int C>
HWY_INLINE Bytes field(const uint8_t* block, int mask) {
  constexpr Place a = F::of(C);
  return _mm256_and_si256(shifted<a.shift>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + a.offset))),
                          all_bytes(mask));
}
template <int C, int kValue>
HWY_INLINE Bytes add_bit(Bytes q, const uint8_t* from) {
  constexpr int kPlace = __builtin_ctz(kValue);
  const Bytes bit = shifted<C - kPlace>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return _mm256_or_si256(q, _mm256_and_si256(bit, all_bytes(kValue)));
}
template <int C>
HWY_INLINE Bytes nibbles_by_16(const uint8_t* from) {
  const Bytes both = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16 * C)));
  return _mm256_and_si256(_mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4)), all_bytes(15));
}
HWY_INLINE Bytes look_up(const int8_t (&table)[16], Bytes nibbles) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), nibbles);
}
HWY_INLINE Bytes either(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }

}  // namespace
}  // namespace vitrine
