#pragma once
// Products of a few rows of int8 activations with the block types of 256 whose weights come out of a block in a few vector
// operations: they go from the block to the byte product without a way through memory. Sums as in dot_integers.h.
#include <type_traits>

#include "kernels/simd/dot_int8.h"
#include "kernels/simd/dot_integers.h"
#include "kernels/simd/dot_nibbles.h"
#if HWY_ARCH_ARM
#include "kernels/neon/registers.h"
#endif

namespace vitrine {
namespace {

/// Where the 32 weights of a part of a block (0 to 7) have some of their bits: in 32 bytes from `offset` on, `shift` places too
/// high, or too low if it is negative.
struct Place {
  int offset, shift;
};

#if HWY_TARGET <= HWY_AVX3

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

#elif HWY_ARCH_X86

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

#endif

#if HWY_ARCH_X86
using Sixteen = __m128i;
HWY_INLINE Sixteen no_bytes() { return _mm_setzero_si128(); }
HWY_INLINE Sixteen sixteen_at(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
HWY_INLINE Sixteen two_words(uint64_t first, uint64_t second) { return _mm_set_epi64x(int64_t(second), int64_t(first)); }
HWY_INLINE Sixteen low_nibbles(Sixteen v) { return _mm_and_si128(v, _mm_set1_epi8(15)); }
HWY_INLINE Sixteen high_nibbles(Sixteen v) { return low_nibbles(_mm_srli_epi16(v, 4)); }
HWY_INLINE Sixteen less(Sixteen v, int value) { return _mm_sub_epi8(v, _mm_set1_epi8(char(value))); }
HWY_INLINE Sixteen second_half(Sixteen v) { return _mm_srli_si128(v, 8); }
/// Words of 32 bits 0, 2, 1, 3.
HWY_INLINE Sixteen middle_swapped(Sixteen v) { return _mm_shuffle_epi32(v, 0xd8); }
/// The eight nibbles of `low`, with two bits of `high` above each.
HWY_INLINE Sixteen six_bits(uint32_t low, uint16_t high) {
  const Sixteen nibbles =
      _mm_unpacklo_epi8(_mm_cvtsi32_si128(int(low & 0x0f0f0f0f)), _mm_cvtsi32_si128(int(low >> 4 & 0x0f0f0f0f)));
  return _mm_or_si128(nibbles, two_words(_pdep_u64(high, 0x3030303030303030), 0));
}
#endif

constexpr int kChunks = 8 / kPartsAtOnce;  // of a block

/// A block's scales and minima as integers, 16 or 8 of them, and their factors.
struct GroupScales {
  float d;
  Sixteen scale;
  float dmin = 0;
  Sixteen minimum = no_bytes();
};
template <class T>
HWY_INLINE T word_at(const uint8_t* p) {
  T word;
  memcpy(&word, p, sizeof word);
  return word;
}
constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0f;  // the low ones of eight bytes

/// SixBitPairs of base/blocks, side by side.
HWY_INLINE GroupScales six_bit_pairs(const uint8_t* block) {
  const auto eight = word_at<uint64_t>(block + 4);
  const uint64_t four = word_at<uint32_t>(block + 12);
  const uint64_t first = eight & 0x3f3f3f3f3f3f3f3f, rest = ((four | four << 28) & kNibbles) | (eight >> 2 & 0x3030303030303030);
  const Sixteen all = middle_swapped(two_words(first, rest));  // scales, minima
  return {half_at(block), all, half_at(block + 2), second_half(all)};
}

// Each type: scales(block); weights<C>(block) are those of chunk C with kOffset added, none below 0; or as they are where
// kSigned is set.

struct NibblesOf64 {  // 32 bytes hold two parts
  template <int kFrom>
  struct At {
    static constexpr Place of(int part) { return {kFrom + part / 2 * 32, part % 2 * 4}; }
  };
};
struct PairsOf128 {  // two bits: 32 bytes hold four parts
  template <int kFrom>
  struct At {
    static constexpr Place of(int part) { return {kFrom + part / 4 * 32, part % 4 * 2}; }
  };
};

struct RegistersQ2_K : BlockQ2_K {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = false;
  static HWY_INLINE GroupScales scales(const uint8_t* block) {
    const Sixteen both = sixteen_at(block);
    return {half_at(block + 80), low_nibbles(both), half_at(block + 82), high_nibbles(both)};
  }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return field<PairsOf128::At<16>, C>(block, 3);
  }
};
struct RegistersQ3_K : BlockQ3_K {
  static constexpr int kOffset = 4;
  static constexpr bool kSigned = false;
  static HWY_INLINE GroupScales scales(const uint8_t* block) {
    const auto nibbles = word_at<uint64_t>(block + 96);
    const uint64_t upper = word_at<uint32_t>(block + 104), pairs = 0x0303030303030303;  // four scales' in one place of four bytes
    const Sixteen all = two_words((nibbles & kNibbles) | ((upper | upper << 30) & pairs) << 4,
                                  (nibbles >> 4 & kNibbles) | ((upper >> 4 | upper << 26) & pairs) << 4);
    return {half_at(block + 108), less(all, 32)};
  }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return add_bit<C, 4>(field<PairsOf128::At<32>, C>(block, 3), block);
  }
};
struct RegistersQ4_K : BlockQ4_K {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = false;
  static HWY_INLINE GroupScales scales(const uint8_t* block) { return six_bit_pairs(block); }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return field<NibblesOf64::At<16>, C>(block, 15);
  }
};
struct RegistersQ5_K : BlockQ5_K {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = false;
  static HWY_INLINE GroupScales scales(const uint8_t* block) { return six_bit_pairs(block); }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return add_bit<C, 16>(field<NibblesOf64::At<48>, C>(block, 15), block + 16);
  }
};
struct RegistersQ6_K : BlockQ6_K {
  static constexpr int kOffset = 32;
  static constexpr bool kSigned = false;
  struct Low {
    static constexpr Place of(int part) { return {part / 4 * 64 + part % 2 * 32, part % 4 / 2 * 4}; }
  };
  struct High {
    static constexpr Place of(int part) { return {128 + part / 4 * 32, part % 4 * 2 - 4}; }
  };
  static HWY_INLINE GroupScales scales(const uint8_t* block) { return {half_at(block + 208), sixteen_at(block + 192)}; }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return either(field<Low, C>(block, 15), field<High, C>(block, 48));
  }
};
struct RegistersIQ4_XS : BlockIQ4_XS {
  static constexpr int kOffset = 0;
  static constexpr bool kSigned = true;
  static HWY_INLINE GroupScales scales(const uint8_t* block) {
    return {half_at(block), less(six_bits(word_at<uint32_t>(block + 4), word_at<uint16_t>(block + 2)), 32)};
  }
  template <int C>
  static HWY_INLINE Bytes weights(const uint8_t* block) {
    return look_up(kNonLinear, nibbles_by_16<C>(block + 8));
  }
};

#if HWY_TARGET <= HWY_AVX3

HWY_INLINE __m512 as_floats(__m128i integers, float factor) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(integers)), _mm512_set1_ps(factor));
}
/// An entry for each group of so many weights.
template <int kGroup>
HWY_INLINE void store_scales(__m128i integers, float factor, float* to) {
  const __m512 values = as_floats(integers, factor);
  if constexpr (kGroup == 16) {
    _mm512_storeu_ps(to, values);
  } else {
    _mm256_storeu_ps(to, _mm512_castps512_ps256(values));
  }
}
HWY_INLINE __m512 twice(__m512 entries) {
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), entries);
}
/// The scales and minima of a block: of 16 groups, or of 8; minima always for each 16 values.
template <class W>
struct BlockScales {
  __m512 scale, minimum;
  BlockScales() = default;
  HWY_INLINE explicit BlockScales(const uint8_t* block) {
    const GroupScales integers = W::scales(block);
    scale = as_floats(integers.scale, integers.d);
    if constexpr (W::kHasMinimum) {
      minimum = as_floats(integers.minimum, integers.dmin);
      if constexpr (W::kGroup == 32) minimum = twice(minimum);
    }
  }
};

/// Its scales times a row's, and those of them that the lanes of chunk C take.
template <class W>
HWY_INLINE __m512 scales_by_row(__m512 scale, const ActivationBlock& x) {
  const __m512 of_x = _mm512_castps256_ps512(_mm256_loadu_ps(x.scale));
  return _mm512_mul_ps(scale, W::kGroup == 16 ? twice(of_x) : of_x);
}
template <class W, int C>
HWY_INLINE __m512 scales_of_chunk(__m512 scales) {
  constexpr int a = 64 / int(W::kGroup) * C;
  if constexpr (W::kGroup == 16)
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(a, a, a, a, a + 1, a + 1, a + 1, a + 1, a + 2, a + 2, a + 2, a + 2, a + 3, a + 3, a + 3, a + 3),
        scales);
  return _mm512_permutexvar_ps(_mm512_setr_epi32(a, a, a, a, a, a, a, a, a + 1, a + 1, a + 1, a + 1, a + 1, a + 1, a + 1, a + 1),
                               scales);
}

/// sum[r][j] += the products of chunk C and those that follow.
template <class W, int R, int J, int C = 0>
HWY_INLINE void add_chunks(const uint8_t* const (&block)[J], const ActivationBlock* x, size_t x_stride,
                           const __m512 (&scale)[R][J], __m512 (&sum)[R][J]) {
  constexpr int kOffset = W::kSigned ? -128 : W::kOffset;
  Bytes w[J];
  for (int j = 0; j < J; ++j) {
    w[j] = W::template weights<C>(block[j]);
    if constexpr (W::kSigned) w[j] = _mm512_xor_si512(w[j], all_bytes(-128));
  }
  for (int r = 0; r < R; ++r) {
    const Bytes q = _mm512_loadu_si512(x[size_t(r) * x_stride].q + 64 * C);
    __m512i start = _mm512_setzero_si512();
    if constexpr (kOffset != 0) start = _mm512_sub_epi32(start, _mm512_dpbusd_epi32(start, all_bytes(kOffset), q));
    for (int j = 0; j < J; ++j) {
      const __m512 dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, w[j], q));
      sum[r][j] = _mm512_fmadd_ps(dot, scales_of_chunk<W, C>(scale[r][j]), sum[r][j]);
    }
  }
  if constexpr (C + 1 < kChunks) add_chunks<W, R, J, C + 1>(block, x, x_stride, scale, sum);
}

/// sum[r][j] += 256 products of block[j] with row r.
template <class W, int R, int J>
HWY_INLINE void add_blocks(const uint8_t* const (&block)[J], const ActivationBlock* x, size_t x_stride, __m512 (&sum)[R][J]) {
  BlockScales<W> of[J];
  for (int j = 0; j < J; ++j) of[j] = BlockScales<W>(block[j]);
  __m512 scale[R][J];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < J; ++j) scale[r][j] = scales_by_row<W>(of[j].scale, x[size_t(r) * x_stride]);
  add_chunks<W, R, J>(block, x, x_stride, scale, sum);
  if constexpr (W::kHasMinimum) {
    for (int r = 0; r < R; ++r) {
      const __m512 sums = _mm512_loadu_ps(x[size_t(r) * x_stride].sum);
      for (int j = 0; j < J; ++j) sum[r][j] = _mm512_fnmadd_ps(of[j].minimum, sums, sum[r][j]);
    }
  }
}

#elif HWY_ARCH_X86

HWY_INLINE __m256 as_floats(__m128i integers, float factor) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(integers)), _mm256_set1_ps(factor));
}
/// An entry for each group of so many weights.
template <int kGroup>
HWY_INLINE void store_scales(__m128i integers, float factor, float* to) {
  _mm256_storeu_ps(to, as_floats(integers, factor));
  if constexpr (kGroup == 16) _mm256_storeu_ps(to + 8, as_floats(_mm_srli_si128(integers, 8), factor));
}
/// The scales and minima of a block: of 16 groups, or of 8.
template <class W>
struct BlockScales {
  alignas(32) float scale[16];
  alignas(32) float minimum[16];
  BlockScales() = default;
  HWY_INLINE explicit BlockScales(const uint8_t* block) {
    const GroupScales integers = W::scales(block);
    store_scales<W::kGroup>(integers.scale, integers.d, scale);
    if constexpr (W::kHasMinimum) store_scales<W::kGroup>(integers.minimum, integers.dmin, minimum);
  }
};

template <class W, int R, int J, int C = 0>
HWY_INLINE void add_chunks(const uint8_t* const (&block)[J], const ActivationBlock* x, size_t x_stride,
                           const BlockScales<W> (&of)[J], __m256 (&sum)[R][J]) {
  constexpr int kHalf = C / 4;
  const __m256i groups = W::kGroup == 16 ? _mm256_setr_epi32(C % 4 * 2, C % 4 * 2, C % 4 * 2, C % 4 * 2, C % 4 * 2 + 1,
                                                             C % 4 * 2 + 1, C % 4 * 2 + 1, C % 4 * 2 + 1)
                                         : _mm256_set1_epi32(C);
  const __m256i ones = _mm256_set1_epi16(1);
  Bytes w[J];
  for (int j = 0; j < J; ++j) w[j] = W::template weights<C>(block[j]);
  for (int r = 0; r < R; ++r) {
    const ActivationBlock& row = x[size_t(r) * x_stride];
    const Bytes q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.q + 32 * C));
    const __m256 x_scale = _mm256_set1_ps(row.scale[C]);
    __m256i offset = _mm256_setzero_si256();
    if constexpr (W::kOffset != 0) offset = _mm256_maddubs_epi16(all_bytes(W::kOffset), q);
    for (int j = 0; j < J; ++j) {
      // The byte product wants w unsigned: |w| is, and x takes w's sign. Pairs of products, at most 2 * 127 * 127, fit in 16
      // bits.
      __m256i pairs =
          W::kSigned ? _mm256_maddubs_epi16(_mm256_abs_epi8(w[j]), _mm256_sign_epi8(q, w[j])) : _mm256_maddubs_epi16(w[j], q);
      if constexpr (W::kOffset != 0) pairs = _mm256_sub_epi16(pairs, offset);
      const __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, ones));
      const __m256 scale = _mm256_permutevar8x32_ps(_mm256_load_ps(of[j].scale + (W::kGroup == 16 ? 8 * kHalf : 0)), groups);
      sum[r][j] = _mm256_fmadd_ps(dot, _mm256_mul_ps(scale, x_scale), sum[r][j]);
    }
  }
  if constexpr (C + 1 < kChunks) add_chunks<W, R, J, C + 1>(block, x, x_stride, of, sum);
}

template <class W, int R, int J>
HWY_INLINE void add_blocks(const uint8_t* const (&block)[J], const ActivationBlock* x, size_t x_stride, __m256 (&sum)[R][J]) {
  BlockScales<W> of[J];
  for (int j = 0; j < J; ++j) of[j] = BlockScales<W>(block[j]);
  add_chunks<W, R, J>(block, x, x_stride, of, sum);
  if constexpr (W::kHasMinimum) {
    for (int r = 0; r < R; ++r)
      for (int half = 0; half < 2; ++half) {
        const __m256 sums = _mm256_loadu_ps(x[size_t(r) * x_stride].sum + 8 * half);
        for (int j = 0; j < J; ++j) {
          const __m256 minimum = W::kGroup == 16 ? _mm256_load_ps(of[j].minimum + 8 * half) : twice(of[j].minimum, half);
          sum[r][j] = _mm256_fnmadd_ps(minimum, sums, sum[r][j]);
        }
      }
  }
}

#else

/// An entry for each group of so many weights.
template <int kGroup>
HWY_INLINE void store_scales(Sixteen integers, float factor, float* to) {
  store_floats<int(kLargestBlock) / kGroup>(integers, factor, to);
}
/// The scales and minima of a block: of 16 groups, or of 8.
template <class W>
struct BlockScales {
  float scale[kLargestBlock / W::kGroup], minimum[kLargestBlock / W::kGroup];
  BlockScales() = default;
  HWY_INLINE explicit BlockScales(const uint8_t* block) {
    const GroupScales integers = W::scales(block);
    store_scales<W::kGroup>(integers.scale, integers.d, scale);
    if constexpr (W::kHasMinimum) store_scales<W::kGroup>(integers.minimum, integers.dmin, minimum);
  }
};

template <class W, int R, int J, int C = 0>
HWY_INLINE void add_chunks(const uint8_t* const (&block)[J], const ActivationBlock* x, size_t x_stride,
                           const BlockScales<W> (&of)[J], IntegerSum (&sum)[R][J]) {
  Bytes w[J];
  for (int j = 0; j < J; ++j) {
    w[j] = W::template weights<C>(block[j]);
    if constexpr (W::kOffset != 0) w[j] = less(w[j], all_bytes(W::kOffset));
  }
  for (int r = 0; r < R; ++r) {
    const ActivationBlock& row = x[size_t(r) * x_stride];
    const Bytes q = bytes_at(row.q + 32 * C);
    for (int j = 0; j < J; ++j) sum[r][j] = add_part<W::kGroup>(sum[r][j], w[j], q, of[j].scale, row.scale, C);
  }
  if constexpr (C + 1 < kChunks) add_chunks<W, R, J, C + 1>(block, x, x_stride, of, sum);
}

template <class W, int R, int J>
HWY_INLINE void add_blocks(const uint8_t* const (&block)[J], const ActivationBlock* x, size_t x_stride, IntegerSum (&sum)[R][J]) {
  BlockScales<W> of[J];
  for (int j = 0; j < J; ++j) of[j] = BlockScales<W>(block[j]);
  add_chunks<W, R, J>(block, x, x_stride, of, sum);
  if constexpr (W::kHasMinimum)
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < J; ++j) sum[r][j] = take_minima<W::kGroup>(sum[r][j], of[j].minimum, x[size_t(r) * x_stride].sum);
}

#endif

/// n <= J outputs of R rows.
template <class W, int R, int J>
HWY_NOINLINE void dot_registers_block(const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride,
                                      float* y, size_t y_stride) {
  IntegerSum sum[R][J];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < J; ++j) sum[r][j] = no_sum();
  const uint8_t* block[J];  // outputs that there are not are the last one again
  for (int j = 0; j < J; ++j) block[j] = reinterpret_cast<const uint8_t*>(w) + min_of(size_t(j), n - 1) * stride;
  const char* ahead = w + J * stride;
  for (size_t i = 0; i < k; i += kLargestBlock, ++x) {
    ask_for(ahead, J * W::kBytes);
    ahead += J * W::kBytes;
    add_blocks<W, R, J>(block, x, x_stride, sum);
    for (int j = 0; j < J; ++j) block[j] += W::kBytes;
  }
  for (int r = 0; r < R; ++r)
    for (size_t j = 0; j < min_of(size_t(J), n); ++j) y[size_t(r) * y_stride + j] = sum_of(Vec{sum[r][j]});
}

template <class W, int R>
void dot_registers_fixed(const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, float* y,
                         size_t y_stride) {
  constexpr int kJ = R == 1 || (kManyRegisters && R == 2) ? 4 : 2;
  for (size_t j = 0; j < n; j += kJ)
    dot_registers_block<W, R, kJ>(w + j * stride, stride, min_of(size_t(kJ), n - j), k, x, x_stride, y + j, y_stride);
}

template <class W>
void dot_registers(const void* weights, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, size_t rows,
                   float* y, size_t y_stride) {
  const char* w = static_cast<const char*>(weights);
  with_rows(rows,
            [&](auto r) HWY_ATTR { dot_registers_fixed<W, decltype(r)::value>(w, stride, n, k, x, x_stride, y, y_stride); });
}

/// How the weights of a type of 256 come into registers; void: they do not.
template <DType kType>
struct RegisterForm {
  using Type = void;
};
#define VITRINE_REGISTERS(name, form) \
  template <>                         \
  struct RegisterForm<DType::name> {  \
    using Type = form;                \
  };
VITRINE_REGISTERS(q2_k, RegistersQ2_K)
VITRINE_REGISTERS(q3_k, RegistersQ3_K)
VITRINE_REGISTERS(q4_k, RegistersQ4_K)
VITRINE_REGISTERS(q5_k, RegistersQ5_K)
VITRINE_REGISTERS(q6_k, RegistersQ6_K)
VITRINE_REGISTERS(iq4_xs, RegistersIQ4_XS)
#undef VITRINE_REGISTERS

/// The fastest product of a type.
template <DType kType>
constexpr auto int8_product() {
  using Form = typename RegisterForm<kType>::Type;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (pack_form<kType>().nibbles != 0) return dot_rows_nibbles<kType>;
#endif
  if constexpr (pack_form<kType>().bytes != 0) {
    return dot_rows_int8<Pack<kType>>;
  } else if constexpr (!std::is_void_v<Form>) {
    return dot_registers<Form>;
  } else {
    return dot_integers<kType>;
  }
}

}  // namespace
}  // namespace vitrine
