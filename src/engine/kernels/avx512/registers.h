#pragma once
// Parts of blocks of 256 as bytes in registers of 64 bytes, for simd/block_registers.h.
#include "kernels/simd/dot_int8.h"
#include "kernels/simd/place.h"
#include "kernels/simd/sixteen.h"

namespace vitrine {
namespace {

using Bytes = __m512i;
constexpr int kPartsAtOnce = 2;  // of 32 weights in a register
HWY_INLINE Bytes all_bytes(int value) { return _mm512_set1_epi8(char(value)); }
HWY_INLINE __m256i bytes_32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

/// Bits of the parts of chunk C, moved to where F says, and masked.
template <class F, int C>
HWY_INLINE Bytes field(const uint8_t* block, int mask) {
  constexpr Place a = F::of(2 * C), b = F::of(2 * C + 1);
  static_assert(b.offset == a.offset || b.offset == a.offset + 32);
  Bytes v = a.offset == b.offset ? _mm512_broadcast_i64x4(bytes_32(block + a.offset)) : _mm512_loadu_si512(block + a.offset);
  if constexpr (a.shift != 0 || b.shift != 0) {
    if constexpr (a.shift >= 0 && b.shift >= 0) {
      v = _mm512_srlv_epi64(v, _mm512_setr_epi64(a.shift, a.shift, a.shift, a.shift, b.shift, b.shift, b.shift, b.shift));
    } else {
      static_assert(a.shift <= 0 && b.shift <= 0);
      v = _mm512_sllv_epi64(v, _mm512_setr_epi64(-a.shift, -a.shift, -a.shift, -a.shift, -b.shift, -b.shift, -b.shift, -b.shift));
    }
  }
  return _mm512_and_si512(v, all_bytes(mask));
}

/// Adds kValue to the weights of chunk C whose bit, the part's number, is set in 32 bytes.
template <int C, int kValue>
HWY_INLINE Bytes add_bit(Bytes q, const uint8_t* from) {
  const Bytes bits = _mm512_inserti64x4(all_bytes(1 << (2 * C)), _mm256_set1_epi8(char(1 << (2 * C + 1))), 1);
  const __mmask64 set = _mm512_test_epi8_mask(_mm512_broadcast_i64x4(bytes_32(from)), bits);
  return _mm512_mask_add_epi8(q, set, q, all_bytes(kValue));
}

/// The nibbles of parts that have 16 bytes each: a part's low ones, then its high ones.
template <int C>
HWY_INLINE Bytes nibbles_by_16(const uint8_t* from) {
  const Bytes both =
      _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), _mm512_castsi256_si512(bytes_32(from + 32 * C)));
  return _mm512_and_si512(_mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)), all_bytes(15));
}
HWY_INLINE Bytes look_up(const int8_t (&table)[16], Bytes nibbles) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), nibbles);
}
HWY_INLINE Bytes either(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }

}  // namespace
}  // namespace vitrine
