#pragma once
// Products of blocks in registers with rows of int8 activations, 32 weights at once.
#include "kernels/simd/block_registers.h"
#include "kernels/simd/dot_integers.h"

namespace vitrine {
namespace {

HWY_INLINE __m256 as_floats(__m128i integers, __m256 factor) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(integers)), factor);
}
/// An entry for each group of so many weights.
template <int kGroup>
HWY_INLINE void store_scales(__m128i integers, float factor, float* to) {
  _mm256_storeu_ps(to, as_floats(integers, _mm256_set1_ps(factor)));
  if constexpr (kGroup == 16) _mm256_storeu_ps(to + 8, as_floats(second_half(integers), _mm256_set1_ps(factor)));
}
/// The scales and minima of a block, for each group of so many weights: 16 of them, or 8.
template <class W>
struct BlockScales {
  static constexpr int kVectors = W::kGroup == 16 ? 2 : 1;
  __m256 scale[kVectors], minimum[kVectors];
  BlockScales() = default;
  HWY_INLINE explicit BlockScales(const uint8_t* block) {
    const GroupScales integers = W::scales(block);
    if constexpr (W::kHasMinimum && W::kGroup == 32) {  // d and dmin are in one word
      const __m128 factors = _mm_cvtph_ps(_mm_cvtsi32_si128(int(bits_32(reinterpret_cast<const char*>(block)))));
      scale[0] = as_floats(integers.scale, _mm256_broadcastss_ps(factors));
      minimum[0] = as_floats(integers.minimum, _mm256_broadcastss_ps(_mm_movehdup_ps(factors)));
      return;
    }
    for (int half = 0; half < kVectors; ++half) {
      scale[half] = as_floats(half == 0 ? integers.scale : second_half(integers.scale), _mm256_set1_ps(integers.d));
      if constexpr (W::kHasMinimum)
        minimum[half] = as_floats(half == 0 ? integers.minimum : second_half(integers.minimum), _mm256_set1_ps(integers.dmin));
    }
  }
};

/// A block's scales times a row's.
template <class W>
HWY_INLINE void store_scales_by_row(const BlockScales<W>& of, const ActivationBlock& x, float* to) {
  if constexpr (W::kGroup == 16) {
    for (int half = 0; half < 2; ++half) _mm256_store_ps(to + 8 * half, _mm256_mul_ps(of.scale[half], twice(x.scale, half)));
  } else {
    _mm256_store_ps(to, _mm256_mul_ps(of.scale[0], _mm256_loadu_ps(x.scale)));
  }
}
/// Those of them that the lanes of chunk C take.
template <class W, int C>
HWY_INLINE __m256 scales_of_chunk(const float* scales) {
  if constexpr (W::kGroup == 32) return _mm256_set1_ps(scales[C]);
  constexpr int a = C % 4 * 2;
  return _mm256_permutevar8x32_ps(_mm256_load_ps(scales + C / 4 * 8), _mm256_setr_epi32(a, a, a, a, a + 1, a + 1, a + 1, a + 1));
}

template <class W, int R, int J, int C = 0>
HWY_INLINE void add_chunks(const uint8_t* const (&block)[J], const ActivationBlock* x, size_t x_stride,
                           const float (&scale)[R][J][16], __m256 (&sum)[R][J]) {
  const __m256i ones = _mm256_set1_epi16(1);
  Bytes w[J];
  for (int j = 0; j < J; ++j) w[j] = W::template weights<C>(block[j]);
  for (int r = 0; r < R; ++r) {
    const Bytes q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[size_t(r) * x_stride].q + 32 * C));
    __m256i offset = _mm256_setzero_si256();
    if constexpr (W::kOffset != 0) offset = _mm256_maddubs_epi16(all_bytes(W::kOffset), q);
    for (int j = 0; j < J; ++j) {
      // The byte product wants w unsigned: |w| is, and x takes w's sign. Pairs of products, at most 2 * 127 * 127, fit in 16
      // bits.
      __m256i pairs =
          W::kSigned ? _mm256_maddubs_epi16(_mm256_abs_epi8(w[j]), _mm256_sign_epi8(q, w[j])) : _mm256_maddubs_epi16(w[j], q);
      if constexpr (W::kOffset != 0) pairs = _mm256_sub_epi16(pairs, offset);
      const __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, ones));
      sum[r][j] = _mm256_fmadd_ps(dot, scales_of_chunk<W, C>(scale[r][j]), sum[r][j]);
    }
  }
  if constexpr (C + 1 < kChunks) add_chunks<W, R, J, C + 1>(block, x, x_stride, scale, sum);
}

template <class W, int R, int J>
HWY_INLINE void add_blocks(const uint8_t* const (&block)[J], const ActivationBlock* x, size_t x_stride, __m256 (&sum)[R][J]) {
  BlockScales<W> of[J];
  for (int j = 0; j < J; ++j) of[j] = BlockScales<W>(block[j]);
  alignas(32) float scale[R][J][16];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < J; ++j) store_scales_by_row(of[j], x[size_t(r) * x_stride], scale[r][j]);
  asm("" : "+m"(scale));  // loads repeat a scale, where the compiler would have the busy vector pipes shuffle registers
  add_chunks<W, R, J>(block, x, x_stride, scale, sum);
  if constexpr (W::kHasMinimum) {
    for (int r = 0; r < R; ++r) {
      const float* sums = x[size_t(r) * x_stride].sum;
      const __m256 low = _mm256_loadu_ps(sums), high = _mm256_loadu_ps(sums + 8);
      if constexpr (W::kGroup == 16) {
        for (int j = 0; j < J; ++j)
          sum[r][j] = _mm256_fnmadd_ps(of[j].minimum[1], high, _mm256_fnmadd_ps(of[j].minimum[0], low, sum[r][j]));
      } else {  // two sums of 16 are one of 32
        const __m256d pairs = _mm256_castps_pd(_mm256_hadd_ps(low, high));
        const __m256 both = _mm256_castpd_ps(_mm256_permute4x64_pd(pairs, 0xd8));
        for (int j = 0; j < J; ++j) sum[r][j] = _mm256_fnmadd_ps(of[j].minimum[0], both, sum[r][j]);
      }
    }
  }
}

}  // namespace
}  // namespace vitrine
