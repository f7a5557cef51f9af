#pragma once
// Products of blocks in registers with rows of int8 activations, 64 weights at once.
#include "kernels/simd/block_registers.h"
#include "kernels/simd/dot_integers.h"

namespace vitrine {
namespace {

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
    if constexpr (W::kHasMinimum && W::kGroup == 32) {  // eight scales and eight minima are in one register, as are d and dmin
      const __m512i of_each = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
      const __m128 factors = _mm_cvtph_ps(_mm_cvtsi32_si128(int(bits_32(reinterpret_cast<const char*>(block)))));
      scale = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(integers.scale)),
                            _mm512_permutexvar_ps(of_each, _mm512_castps128_ps512(factors)));
      minimum = _mm512_permutexvar_ps(_mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15), scale);
    } else {
      scale = as_floats(integers.scale, integers.d);
      if constexpr (W::kHasMinimum) minimum = as_floats(integers.minimum, integers.dmin);
    }
  }
};

/// Q4_K: the weights of odd parts, which are high nibbles, stay where they are and count 16 times, and their scales a 16th. That
/// saves a shift and changes no bit.
template <class W>
constexpr bool kSixteenfold = std::is_same_v<W, RegistersQ4_K>;
template <class W, int C>
HWY_INLINE Bytes weights_of_chunk(const uint8_t* block) {
  if constexpr (kSixteenfold<W>) {
    const Bytes nibbles = _mm512_inserti64x4(all_bytes(15), _mm256_set1_epi8(char(0xf0)), 1);
    return _mm512_and_si512(_mm512_broadcast_i64x4(bytes_32(block + 16 + 32 * C)), nibbles);
  } else {
    return W::template weights<C>(block);
  }
}

/// Its scales times a row's, and those of them that the lanes of chunk C take.
template <class W>
HWY_INLINE __m512 scales_by_row(__m512 scale, const ActivationBlock& x) {
  __m256 of_x = _mm256_loadu_ps(x.scale);
  if constexpr (kSixteenfold<W>) of_x = _mm256_mul_ps(of_x, _mm256_setr_ps(1, 0.0625f, 1, 0.0625f, 1, 0.0625f, 1, 0.0625f));
  const __m512 wide = _mm512_castps256_ps512(of_x);
  return _mm512_mul_ps(scale, W::kGroup == 16 ? twice(wide) : wide);
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
    w[j] = weights_of_chunk<W, C>(block[j]);
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

}  // namespace
}  // namespace vitrine
