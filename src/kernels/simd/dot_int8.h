#pragma once
// Products of a few rows of int8 activations with block weights. Per block of 32 the integer sum is exact; it enters one
// f32 accumulator per (row, output) as scale(w) * scale(x) * sum, block after block, so that bits depend on neither the
// rows nor the cuts.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

#if HWY_ARCH_X86

/// Adds, in each of eight lanes, the products of four neighbouring bytes of u (unsigned) and x (signed).
HWY_INLINE __m256i dot4(__m256i sum, __m256i u, __m256i x) {
#if HWY_TARGET <= HWY_AVX3
  return _mm256_dpbusd_epi32(sum, u, x);
#else  // pairs fit in 16 bits: |w| <= 128, |x| <= 127
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), _mm256_set1_epi16(1)));
#endif
}

/// 32 weights of one block, ready for products with any number of rows.
struct Int8Q8 {
  static constexpr size_t kBytes = sizeof(BlockQ8_0);
  __m256i w;
  HWY_INLINE explicit Int8Q8(const char* block) {
    w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2));
#if HWY_TARGET <= HWY_AVX3
    w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));  // w + 128, unsigned: 128 * sum(x) is taken out of the sum below
#endif
  }
  HWY_INLINE __m256i dot(const ActivationBlock& b, __m256i x) const {
#if HWY_TARGET <= HWY_AVX3
    return dot4(_mm256_zextsi128_si256(_mm_cvtsi32_si128(-128 * b.sum)), w, x);
#else
    (void)b;
    return dot4(_mm256_setzero_si256(), _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
#endif
  }
};
struct Int8Q4 {
  static constexpr size_t kBytes = sizeof(BlockQ4_0);
  __m256i w;
  HWY_INLINE explicit Int8Q4(const char* block) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2));
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
    w = _mm256_and_si256(both, _mm256_set1_epi8(15));
  }
  HWY_INLINE __m256i dot(const ActivationBlock& b, __m256i x) const {
    return dot4(_mm256_zextsi128_si256(_mm_cvtsi32_si128(-8 * b.sum)), w, x);
  }
};

HWY_INLINE float scale_of(const char* block) {
  uint16_t bits;
  memcpy(&bits, block, 2);
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

template <class W, int R, int J>
HWY_INLINE void int8_block(const char* w, size_t stride, size_t k, const ActivationBlock* x, size_t x_stride, float* y,
                           size_t y_stride) {
  __m256 sum[J][R];
  for (int j = 0; j < J; ++j)
    for (int r = 0; r < R; ++r) sum[j][r] = _mm256_setzero_ps();
  const size_t blocks = k / kBlock;
  for (size_t b = 0; b < blocks; ++b, w += W::kBytes) {
    for (int j = 0; j < J; ++j) {
      const char* row = w + size_t(j) * stride;
      if constexpr (J > 1) __builtin_prefetch(row + size_t(J) * stride, 0, 2);
      const W block(row);
      const float w_scale = scale_of(row);
      for (int r = 0; r < R; ++r) {
        const ActivationBlock& a = x[size_t(r) * x_stride + b];
        const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a.q));
        const __m256 scale = _mm256_set1_ps(w_scale * a.scale);
        sum[j][r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(block.dot(a, q)), scale, sum[j][r]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < J; ++j) {
      const __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum[j][r]), _mm256_extractf128_ps(sum[j][r], 1));
      const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
      y[size_t(r) * y_stride + size_t(j)] = _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
    }
}

template <class W, int R>
void int8_fixed(const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, float* y,
                size_t y_stride) {
  constexpr int kJ = R == 1 ? 4 : R <= 3 ? 2 : 1;
  size_t j = 0;
  for (; j + kJ <= n; j += kJ) int8_block<W, R, kJ>(w + j * stride, stride, k, x, x_stride, y + j, y_stride);
  if constexpr (kJ > 1) {
    for (; j < n; ++j) int8_block<W, R, 1>(w + j * stride, stride, k, x, x_stride, y + j, y_stride);
  }
}

template <class W>
void dot_rows_int8(const void* weights, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, size_t rows,
                   float* y, size_t y_stride) {
  const char* w = static_cast<const char*>(weights);
  switch (rows) {
    case 1: return int8_fixed<W, 1>(w, stride, n, k, x, x_stride, y, y_stride);
    case 2: return int8_fixed<W, 2>(w, stride, n, k, x, x_stride, y, y_stride);
    case 3: return int8_fixed<W, 3>(w, stride, n, k, x, x_stride, y, y_stride);
    case 4: return int8_fixed<W, 4>(w, stride, n, k, x, x_stride, y, y_stride);
    case 5: return int8_fixed<W, 5>(w, stride, n, k, x, x_stride, y, y_stride);
    case 6: return int8_fixed<W, 6>(w, stride, n, k, x, x_stride, y, y_stride);
    case 7: return int8_fixed<W, 7>(w, stride, n, k, x, x_stride, y, y_stride);
    case 8: return int8_fixed<W, 8>(w, stride, n, k, x, x_stride, y, y_stride);
    default: return;
  }
}

#endif  // HWY_ARCH_X86

}  // namespace
}  // namespace vitrine
