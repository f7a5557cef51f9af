#pragma once
// Products of a few rows of int8 activations with block weights. Per block of 32, each of eight lanes sums four products
// exactly in integers; the lane then enters its f32 sum as scale(w) * scale(x) * integer, block after block. So bits
// depend on neither the rows nor the cuts. The byte products want one operand unsigned: see each Pack.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

#if HWY_ARCH_X86

HWY_INLINE float sum_of_eight(__m256 v) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
HWY_INLINE __m128i every_half(const char* p) {
  short bits;
  memcpy(&bits, p, 2);
  return _mm_set1_epi16(bits);
}

#if HWY_TARGET <= HWY_AVX3

/// Blocks of two outputs side by side in one register. Weights are made unsigned by an offset (128 for Q8_0, the
/// stored nibble's own 8 for Q4_0); offset * x is taken out again in each lane.
template <bool kNibbles>
struct Pack {
  static constexpr size_t kOutputs = 2, kBytes = kNibbles ? sizeof(BlockQ4_0) : sizeof(BlockQ8_0);
  using Sum = __m512;
  struct Row {  // a block of activations, in both halves
    __m512i q, correction;
    __m512 scale;
    HWY_INLINE Row(const ActivationBlock& b, size_t part)
        : q(_mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.q + part * kBlock)))),
          scale(_mm512_set1_ps(b.scale[part])) {
      const __m512i offset = _mm512_set1_epi8(kNibbles ? 8 : -128);
      correction = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_dpbusd_epi32(_mm512_setzero_si512(), offset, q));
    }
  };
  __m512i q;
  __m512 scale;
  Pack() = default;
  HWY_INLINE Pack(const char* first, const char* second) {
    const __m256i halves = _mm256_inserti128_si256(_mm256_castsi128_si256(every_half(first)), every_half(second), 1);
    scale = _mm512_cvtph_ps(halves);
    if constexpr (kNibbles) {
      const __m256i a = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first + 2)));
      const __m256i b = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(second + 2)));
      const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
      const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);  // low nibbles, high nibbles
      q = _mm512_and_si512(_mm512_srlv_epi64(both, shift), _mm512_set1_epi8(15));
    } else {
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first + 2));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second + 2));
      q = _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1), _mm512_set1_epi8(-128));
    }
  }
  static HWY_INLINE Sum zero() { return _mm512_setzero_ps(); }
  HWY_INLINE Sum add_to(Sum sum, const Row& x) const {
    const __m512 dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(x.correction, q, x.q));
    return _mm512_fmadd_ps(dot, _mm512_mul_ps(scale, x.scale), sum);
  }
  static HWY_INLINE void store(Sum sum, float* y, size_t n) {
    y[0] = sum_of_eight(_mm512_castps512_ps256(sum));
    if (n > 1) y[1] = sum_of_eight(_mm512_extractf32x8_ps(sum, 1));
  }
};
/// Packs at a time for R rows: R * packs sums, and a weight and a scale per pack, in 32 registers.
template <int R>
constexpr int packs_at_a_time() {
  return R <= 4 ? 4 : R == 5 ? 3 : 2;
}

#else

/// One output. Q8_0: |w| is the unsigned operand and x takes w's sign; the pairs of products, at most 2 * 128 * 127, fit
/// in 16 bits. Q4_0: the stored nibble is unsigned, and 8 * x is taken out in each lane.
template <bool kNibbles>
struct Pack {
  static constexpr size_t kOutputs = 1, kBytes = kNibbles ? sizeof(BlockQ4_0) : sizeof(BlockQ8_0);
  using Sum = __m256;
  static HWY_INLINE __m256i dot(__m256i u, __m256i x) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), _mm256_set1_epi16(1));
  }
  struct Row {
    __m256i q, correction;
    __m256 scale;
    HWY_INLINE Row(const ActivationBlock& b, size_t part)
        : q(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.q + part * kBlock))), scale(_mm256_set1_ps(b.scale[part])) {
      correction = kNibbles ? dot(_mm256_set1_epi8(8), q) : _mm256_setzero_si256();
    }
  };
  __m256i q;
  __m256 scale;
  Pack() = default;
  HWY_INLINE Pack(const char* block, const char*) {
    scale = _mm256_cvtph_ps(every_half(block));
    if constexpr (kNibbles) {
      const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2)));
      q = _mm256_and_si256(_mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
    } else {
      q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2));
    }
  }
  static HWY_INLINE Sum zero() { return _mm256_setzero_ps(); }
  HWY_INLINE Sum add_to(Sum sum, const Row& x) const {
    const __m256i lanes =
        kNibbles ? _mm256_sub_epi32(dot(q, x.q), x.correction) : dot(_mm256_abs_epi8(q), _mm256_sign_epi8(x.q, q));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(lanes), _mm256_mul_ps(scale, x.scale), sum);
  }
  static HWY_INLINE void store(Sum sum, float* y, size_t) { *y = sum_of_eight(sum); }
};
template <int R>
constexpr int packs_at_a_time() {
  return R == 1 ? 4 : R <= 3 ? 2 : 1;
}

#endif

/// P packs of outputs, the last of which may hold fewer than Pack::kOutputs: n outputs in all.
template <class W, int R, int P>
HWY_INLINE void int8_block(const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, float* y,
                           size_t y_stride) {
  typename W::Sum sum[P][R];
  for (int p = 0; p < P; ++p)
    for (int r = 0; r < R; ++r) sum[p][r] = W::zero();
  const size_t to_second = n > 1 ? stride : 0;
  for (; k > 0; ++x) {
    const size_t here = min_of(k, ActivationBlock::kElements);
    k -= here;
    for (size_t part = 0; part < here / kBlock; ++part, w += W::kBytes) {
      W pack[P];
      for (int p = 0; p < P; ++p) {
        const char* first = w + size_t(p) * W::kOutputs * stride;
        if constexpr (P > 1) {
          __builtin_prefetch(first + P * W::kOutputs * stride, 0, 2);
          if constexpr (W::kOutputs > 1) __builtin_prefetch(first + (P * W::kOutputs + 1) * stride, 0, 2);
        }
        pack[p] = W(first, first + to_second);
      }
      for (int r = 0; r < R; ++r) {
        const typename W::Row row(x[size_t(r) * x_stride], part);
        for (int p = 0; p < P; ++p) sum[p][r] = pack[p].add_to(sum[p][r], row);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p)
      W::store(sum[p][r], y + size_t(r) * y_stride + size_t(p) * W::kOutputs, n - size_t(p) * W::kOutputs);
}

template <class W, int R>
void int8_fixed(const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, float* y,
                size_t y_stride) {
  constexpr int kPacks = packs_at_a_time<R>();
  constexpr size_t kMany = size_t(kPacks) * W::kOutputs;
  size_t j = 0;
  for (; j + kMany <= n; j += kMany) int8_block<W, R, kPacks>(w + j * stride, stride, kMany, k, x, x_stride, y + j, y_stride);
  for (; j < n; j += W::kOutputs)
    int8_block<W, R, 1>(w + j * stride, stride, min_of(W::kOutputs, n - j), k, x, x_stride, y + j, y_stride);
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
