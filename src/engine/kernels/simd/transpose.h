#pragma once
// A square of kLanes x kLanes f32 in registers, rows for columns.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

HWY_INLINE void transpose(Vec (&v)[kLanes]) {
#if HWY_TARGET <= HWY_AVX3
  // 2x2 and 4x4 within 128-bit quarters, then the quarters among four registers, twice.
  __m512 a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(v[i].raw, v[i + 1].raw);
    a[i + 1] = _mm512_unpackhi_ps(v[i].raw, v[i + 1].raw);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      const __m512d lo = _mm512_castps_pd(a[i + j]), hi = _mm512_castps_pd(a[i + j + 2]);
      b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(lo, hi));
      b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(lo, hi));
    }
  // b[4g + c]: quarter q holds column 4q + c of rows 4g .. 4g + 3.
  for (int c = 0; c < 4; ++c) {
    const __m512 even01 = _mm512_shuffle_f32x4(b[c], b[c + 4], 0x88), odd01 = _mm512_shuffle_f32x4(b[c], b[c + 4], 0xdd);
    const __m512 even23 = _mm512_shuffle_f32x4(b[c + 8], b[c + 12], 0x88),
                 odd23 = _mm512_shuffle_f32x4(b[c + 8], b[c + 12], 0xdd);
    v[c] = Vec{_mm512_shuffle_f32x4(even01, even23, 0x88)};
    v[c + 8] = Vec{_mm512_shuffle_f32x4(even01, even23, 0xdd)};
    v[c + 4] = Vec{_mm512_shuffle_f32x4(odd01, odd23, 0x88)};
    v[c + 12] = Vec{_mm512_shuffle_f32x4(odd01, odd23, 0xdd)};
  }
#elif HWY_TARGET <= HWY_AVX2
  __m256 a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(v[i].raw, v[i + 1].raw);
    a[i + 1] = _mm256_unpackhi_ps(v[i].raw, v[i + 1].raw);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      const __m256d lo = _mm256_castps_pd(a[i + j]), hi = _mm256_castps_pd(a[i + j + 2]);
      b[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(lo, hi));
      b[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(lo, hi));
    }
  for (int c = 0; c < 4; ++c) {
    v[c] = Vec{_mm256_permute2f128_ps(b[c], b[c + 4], 0x20)};
    v[c + 4] = Vec{_mm256_permute2f128_ps(b[c], b[c + 4], 0x31)};
  }
#elif HWY_ARCH_ARM
  const float32x4_t a = vzip1q_f32(v[0].raw, v[2].raw), b = vzip2q_f32(v[0].raw, v[2].raw);
  const float32x4_t c = vzip1q_f32(v[1].raw, v[3].raw), d = vzip2q_f32(v[1].raw, v[3].raw);
  v[0] = Vec{vzip1q_f32(a, c)};
  v[1] = Vec{vzip2q_f32(a, c)};
  v[2] = Vec{vzip1q_f32(b, d)};
  v[3] = Vec{vzip2q_f32(b, d)};
#else
  float square[kLanes][kLanes];
  for (size_t i = 0; i < kLanes; ++i) store(v[i], square[i]);
  for (size_t i = 0; i < kLanes; ++i) {
    float column[kLanes];
    for (size_t j = 0; j < kLanes; ++j) column[j] = square[j][i];
    v[i] = load(column);
  }
#endif
}

/// Sums of M <= kLanes outputs, whose lanes are rows: y[r][m] = sum[m][r], or y[r][m] + that, for r < rows <= kLanes.
template <int M>
HWY_INLINE void store_transposed(const Vec* sum, size_t rows, float* y, size_t y_stride, bool add) {
  Vec square[kLanes];
  for (size_t m = 0; m < kLanes; ++m) square[m] = m < M ? sum[m < M ? m : 0] : hn::Zero(Tag());
  transpose(square);
  for (size_t r = 0; r < rows; ++r) {
    float* out = y + r * y_stride;
    store_up_to(add ? hn::Add(load_up_to(out, M), square[r]) : square[r], out, M);
  }
}

}  // namespace
}  // namespace vitrine
