#pragma once
// Sixteen bytes in a register on x86: the scales of a block of 256.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

using Sixteen = __m128i;
HWY_INLINE Sixteen no_bytes() { return _mm_setzero_si128(); }
HWY_INLINE Sixteen sixteen_at(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
HWY_INLINE Sixteen two_words(uint64_t first, uint64_t second) { return _mm_set_epi64x(int64_t(second), int64_t(first)); }
HWY_INLINE Sixteen low_nibbles(Sixteen v) { return _mm_and_si128(v, _mm_set1_epi8(15)); }
HWY_INLINE Sixteen high_nibbles(Sixteen v) { return low_nibbles(_mm_srli_epi16(v, 4)); }
HWY_INLINE Sixteen less(Sixteen v, int value) { return _mm_sub_epi8(v, _mm_set1_epi8(char(value))); }
HWY_INLINE Sixteen second_half(Sixteen v) { return _mm_srli_si128(v, 8); }
/// SixBitPairs of base/blocks behind the first four bytes: eight scales, then eight minima.
HWY_INLINE Sixteen six_bit_pairs(const uint8_t* block) {
  const Sixteen all = sixteen_at(block);
  const Sixteen low = _mm_shuffle_epi8(all, _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
  const Sixteen bits = _mm_and_si128(_mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 0, 4)),
                                     _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
  const Sixteen upper = _mm_srli_epi16(_mm_shuffle_epi32(low, 0xa0), 2);  // of words 1 and 3
  return _mm_or_si128(bits, _mm_and_si128(upper, _mm_setr_epi32(0, 0x30303030, 0, 0x30303030)));
}
/// The eight nibbles of `low`, with two bits of `high` above each.
HWY_INLINE Sixteen six_bits(uint32_t low, uint16_t high) {
  const Sixteen nibbles =
      _mm_unpacklo_epi8(_mm_cvtsi32_si128(int(low & 0x0f0f0f0f)), _mm_cvtsi32_si128(int(low >> 4 & 0x0f0f0f0f)));
  return _mm_or_si128(nibbles, two_words(_pdep_u64(high, 0x3030303030303030), 0));
}

}  // namespace
}  // namespace vitrine
