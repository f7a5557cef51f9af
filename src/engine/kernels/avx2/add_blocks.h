#pragma once
// Products of blocks in registers with rows of int8 activations, 32 weights at once.
#include "kernels/simd/block_registers.h"
#include "kernels/simd/dot_integers.h"

namespace vitrine {
namespace {

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

}  // namespace
}  // namespace vitrine
