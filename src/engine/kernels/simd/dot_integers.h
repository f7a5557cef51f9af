#pragma once
// Products of a few rows of int8 activations with the block types of base/blocks. 256 weights of a few outputs are unpacked to
// int8 in the first cache, and all rows of x are multiplied with them there. Lanes sum four products each exactly in integers; a
// lane then enters its f32 sum as scale(w) * scale(x) * integer. What minima take away are products of 16 at a time, in f32. So
// bits depend on neither the rows nor the cuts.
#include "base/blocks/all.h"
#include "kernels/simd/vec.h"
#if HWY_ARCH_ARM
#include "kernels/neon/bytes.h"
#endif

namespace vitrine {
namespace {

/// 256 weights of one output: every group of 16 or 32 is scale q - minimum.
struct Unpacked {
  alignas(64) int8_t q[kLargestBlock];
  alignas(64) float scale[kLargestBlock / 16];
  alignas(64) float minimum[kLargestBlock / 16];
};

/// n of them, a multiple of a block's elements; the rest have scale and minimum 0.
template <class Block>
HWY_NOINLINE void unpack(const char* row, size_t n, Unpacked& to) {
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  for (size_t i = 0; i < n; i += Block::kElements, block += Block::kBytes)
    Block::integers(block, to.q + i, to.scale + i / Block::kGroup, to.minimum + i / Block::kGroup);
  if (n == kLargestBlock) return;
  memset(to.q + n, 0, kLargestBlock - n);
  memset(to.scale + n / Block::kGroup, 0, (kLargestBlock - n) / Block::kGroup * sizeof(float));
  memset(to.minimum + n / Block::kGroup, 0, (kLargestBlock - n) / Block::kGroup * sizeof(float));
}
using Unpack = void (*)(const char* row, size_t n, Unpacked& to);

#if HWY_TARGET <= HWY_AVX3

using IntegerSum = __m512;
HWY_INLINE IntegerSum no_sum() { return _mm512_setzero_ps(); }

/// An entry for each of 8 groups of 32, twice: for each 16.
HWY_INLINE __m512 twice(const float* entries) {
  const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(entries)));
}

/// sum[j] += 256 products of w[j] with a row. The byte product wants w unsigned: where it is not, 128 is added, and 128 x is
/// where the integer starts from, below zero.
template <class W, int J>
HWY_INLINE void add_products_of_256(const Unpacked (&w)[J], const ActivationBlock& x, IntegerSum* sum) {
  __m512 scale[J];
  __m512i groups;  // of the scale that each lane takes
  if constexpr (W::kGroup == 16) {
    const __m512 x_scale = twice(x.scale);
    for (int j = 0; j < J; ++j) scale[j] = _mm512_mul_ps(_mm512_load_ps(w[j].scale), x_scale);
    groups = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  } else {
    const __m256 x_scale = _mm256_loadu_ps(x.scale);
    for (int j = 0; j < J; ++j) scale[j] = _mm512_castps256_ps512(_mm256_mul_ps(_mm256_load_ps(w[j].scale), x_scale));
    groups = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  }
  for (size_t i = 0; i < kLargestBlock; i += 64) {
    const __m512i q = _mm512_loadu_si512(x.q + i);
    __m512i start = _mm512_setzero_si512();
    if constexpr (!W::kHasMinimum)
      start = _mm512_sub_epi32(start, _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(-128), q));
    for (int j = 0; j < J; ++j) {
      __m512i weights = _mm512_load_si512(w[j].q + i);
      if constexpr (!W::kHasMinimum) weights = _mm512_xor_si512(weights, _mm512_set1_epi8(-128));
      const __m512 dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, weights, q));
      sum[j] = _mm512_fmadd_ps(dot, _mm512_permutexvar_ps(groups, scale[j]), sum[j]);
    }
    groups = _mm512_add_epi32(groups, _mm512_set1_epi32(64 / W::kGroup));
  }
  if constexpr (W::kHasMinimum) {
    const __m512 sums = _mm512_loadu_ps(x.sum);
    for (int j = 0; j < J; ++j) {
      const __m512 minimum = W::kGroup == 16 ? _mm512_load_ps(w[j].minimum) : twice(w[j].minimum);
      sum[j] = _mm512_fnmadd_ps(minimum, sums, sum[j]);
    }
  }
}

#elif HWY_ARCH_X86

using IntegerSum = __m256;
HWY_INLINE IntegerSum no_sum() { return _mm256_setzero_ps(); }

/// Entries 4 half .. of 8 groups of 32, twice: for each 16.
HWY_INLINE __m256 twice(const float* entries, int half) {
  const __m256i index = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(entries + 4 * half)), index);
}

/// sum[j] += 256 products of w[j] with a row. The byte product wants w unsigned: |w| is, and x takes w's sign. The pairs of
/// products, at most 2 * 128 * 127, fit in 16 bits.
template <class W, int J>
HWY_INLINE void add_products_of_256(const Unpacked (&w)[J], const ActivationBlock& x, IntegerSum* sum) {
  for (int half = 0; half < 2; ++half) {
    __m256 scale[J];
    for (int j = 0; j < J; ++j)
      scale[j] = W::kGroup == 16 ? _mm256_mul_ps(_mm256_load_ps(w[j].scale + 8 * half), twice(x.scale, half))
                                 : _mm256_mul_ps(_mm256_load_ps(w[j].scale), _mm256_loadu_ps(x.scale));
    __m256i groups = W::kGroup == 16 ? _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1) : _mm256_set1_epi32(4 * half);
    for (size_t i = size_t(half) * 128; i < size_t(half + 1) * 128; i += 32) {
      const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.q + i));
      for (int j = 0; j < J; ++j) {
        const __m256i weights = _mm256_load_si256(reinterpret_cast<const __m256i*>(w[j].q + i));
        const __m256i pairs = W::kHasMinimum ? _mm256_maddubs_epi16(weights, q)
                                             : _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(q, weights));
        const __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        sum[j] = _mm256_fmadd_ps(dot, _mm256_permutevar8x32_ps(scale[j], groups), sum[j]);
      }
      groups = _mm256_add_epi32(groups, _mm256_set1_epi32(32 / W::kGroup));
    }
    if constexpr (W::kHasMinimum) {
      const __m256 sums = _mm256_loadu_ps(x.sum + 8 * half);
      for (int j = 0; j < J; ++j) {
        const __m256 minimum = W::kGroup == 16 ? _mm256_load_ps(w[j].minimum + 8 * half) : twice(w[j].minimum, half);
        sum[j] = _mm256_fnmadd_ps(minimum, sums, sum[j]);
      }
    }
  }
}

#else

using IntegerSum = float32x4_t;
HWY_INLINE IntegerSum no_sum() { return vdupq_n_f32(0); }

/// sum[j] += 256 products of w[j] with a row.
template <class W, int J>
HWY_INLINE void add_products_of_256(const Unpacked (&w)[J], const ActivationBlock& x, IntegerSum* sum) {
  for (int part = 0; part < 8; ++part) {
    const Bytes q = bytes_at(x.q + 32 * part);
    for (int j = 0; j < J; ++j) sum[j] = add_part<W::kGroup>(sum[j], bytes_at(w[j].q + 32 * part), q, w[j].scale, x.scale, part);
  }
  if constexpr (W::kHasMinimum)
    for (int j = 0; j < J; ++j) sum[j] = take_minima<W::kGroup>(sum[j], w[j].minimum, x.sum);
}

#endif

/// What a product has to know of a block type beside how it is unpacked.
template <int kGroupOf, bool kHasMinimumOf>
struct UnpackedForm {
  static constexpr int kGroup = kGroupOf;
  static constexpr bool kHasMinimum = kHasMinimumOf;
};

/// J outputs of R rows; `chunk` is the bytes of 256 weights.
template <class W, int R, int J>
void dot_integers_block(Unpack unpack, size_t chunk, const char* w, size_t stride, size_t k, const ActivationBlock* x,
                        size_t x_stride, float* y, size_t y_stride) {
  IntegerSum sum[R][J];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < J; ++j) sum[r][j] = no_sum();
  Unpacked weights[J];
  const char* ahead = ahead_of_rows(w, J * stride);
  for (size_t i = 0; i < k; i += kLargestBlock, w += chunk, ++x) {
    ask_for(ahead, J * chunk);
    ahead += J * chunk;
    for (int j = 0; j < J; ++j) {
      const char* row = w + size_t(j) * stride;
      unpack(row, min_of(kLargestBlock, k - i), weights[j]);
    }
    for (int r = 0; r < R; ++r) add_products_of_256<W, J>(weights, x[size_t(r) * x_stride], sum[r]);
  }
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < J; ++j) y[size_t(r) * y_stride + size_t(j)] = sum_of(Vec{sum[r][j]});
}

template <class W, int R>
void dot_integers_fixed(Unpack unpack, size_t chunk, const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x,
                        size_t x_stride, float* y, size_t y_stride) {
  constexpr int kJ = R <= 4 ? 4 : kManyRegisters ? 3 : 2;
  size_t j = 0;
  for (; j + kJ <= n; j += kJ)
    dot_integers_block<W, R, kJ>(unpack, chunk, w + j * stride, stride, k, x, x_stride, y + j, y_stride);
  for (; j < n; ++j) dot_integers_block<W, R, 1>(unpack, chunk, w + j * stride, stride, k, x, x_stride, y + j, y_stride);
}

template <DType kType>
void dot_integers(const void* weights, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, size_t rows,
                  float* y, size_t y_stride) {
  using Block = DecodedBlock<kType>;
  using W = UnpackedForm<Block::kGroup, Block::kHasMinimum>;
  constexpr size_t kChunk = row_bytes(kType, kLargestBlock);
  const char* w = static_cast<const char*>(weights);
  with_rows(rows, [&](auto r) HWY_ATTR {
    dot_integers_fixed<W, decltype(r)::value>(unpack<Block>, kChunk, w, stride, n, k, x, x_stride, y, y_stride);
  });
}

}  // namespace
}  // namespace vitrine
