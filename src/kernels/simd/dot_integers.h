#pragma once
// Products of a few rows of int8 activations with the block types of base/blocks. 256 weights of a few outputs are unpacked to
// int8 in the first cache, and all rows of x are multiplied with them there. Lanes sum four products each exactly in integers; a
// lane then enters its f32 sum as scale(w) * scale(x) * integer. What minima take away are products of 16 at a time, in f32. So
// bits depend on neither the rows nor the cuts.
#include "base/blocks/all.h"
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

/// 256 weights of one output: every 16 are scale q - minimum.
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
    Block::integers(block, to.q + i, to.scale + i / 16, to.minimum + i / 16);
  if (n == kLargestBlock) return;
  memset(to.q + n, 0, kLargestBlock - n);
  memset(to.scale + n / 16, 0, (kLargestBlock - n) / 16 * sizeof(float));
  memset(to.minimum + n / 16, 0, (kLargestBlock - n) / 16 * sizeof(float));
}
using Unpack = void (*)(const char* row, size_t n, Unpacked& to);

#if HWY_ARCH_X86

#if HWY_TARGET <= HWY_AVX3

/// A block of activations, as every output reads it.
struct IntegerRow {
  const ActivationBlock& x;
  __m512 scale;  // of every 16
  HWY_INLINE explicit IntegerRow(const ActivationBlock& block) : x(block) {
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    scale = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(x.scale)));
  }
};
using IntegerSum = __m512;
HWY_INLINE IntegerSum no_sum() { return _mm512_setzero_ps(); }
HWY_INLINE float total_of(IntegerSum sum) { return sum_of(Vec{sum}); }

/// sum[j] += 256 products of w[j] with a row. The byte product wants w unsigned: where it is not, 128 is added, and 128 x is
/// where the integer starts from, below zero.
template <bool kHasMinimum, int J>
HWY_INLINE void add_products_of_256(const Unpacked (&w)[J], const IntegerRow& row, IntegerSum* sum) {
  __m512 scale[J];
  for (int j = 0; j < J; ++j) scale[j] = _mm512_mul_ps(_mm512_load_ps(w[j].scale), row.scale);
  __m512i groups = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  for (size_t i = 0; i < kLargestBlock; i += 64) {
    const __m512i q = _mm512_loadu_si512(row.x.q + i);
    __m512i start = _mm512_setzero_si512();
    if constexpr (!kHasMinimum)
      start = _mm512_sub_epi32(start, _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(-128), q));
    for (int j = 0; j < J; ++j) {
      __m512i weights = _mm512_load_si512(w[j].q + i);
      if constexpr (!kHasMinimum) weights = _mm512_xor_si512(weights, _mm512_set1_epi8(-128));
      const __m512 dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, weights, q));
      sum[j] = _mm512_fmadd_ps(dot, _mm512_permutexvar_ps(groups, scale[j]), sum[j]);
    }
    groups = _mm512_add_epi32(groups, _mm512_set1_epi32(4));
  }
  if constexpr (kHasMinimum) {
    const __m512 sums = _mm512_loadu_ps(row.x.sum);
    for (int j = 0; j < J; ++j) sum[j] = _mm512_fnmadd_ps(_mm512_load_ps(w[j].minimum), sums, sum[j]);
  }
}

#else

struct IntegerRow {
  const ActivationBlock& x;
  __m256 scale[2];  // of every 16
  HWY_INLINE explicit IntegerRow(const ActivationBlock& block) : x(block) {
    const __m256 all = _mm256_loadu_ps(x.scale);
    scale[0] = _mm256_permutevar8x32_ps(all, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    scale[1] = _mm256_permutevar8x32_ps(all, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7));
  }
};
using IntegerSum = __m256;
HWY_INLINE IntegerSum no_sum() { return _mm256_setzero_ps(); }
HWY_INLINE float total_of(IntegerSum sum) { return sum_of(Vec{sum}); }

/// sum[j] += 256 products of w[j] with a row. The byte product wants w unsigned: |w| is, and x takes w's sign. The pairs of
/// products, at most 2 * 128 * 127, fit in 16 bits.
template <bool kHasMinimum, int J>
HWY_INLINE void add_products_of_256(const Unpacked (&w)[J], const IntegerRow& row, IntegerSum* sum) {
  for (size_t half = 0; half < 2; ++half) {
    __m256 scale[J];
    for (int j = 0; j < J; ++j) scale[j] = _mm256_mul_ps(_mm256_load_ps(w[j].scale + 8 * half), row.scale[half]);
    __m256i groups = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    for (size_t i = half * 128; i < half * 128 + 128; i += 32) {
      const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.x.q + i));
      for (int j = 0; j < J; ++j) {
        const __m256i weights = _mm256_load_si256(reinterpret_cast<const __m256i*>(w[j].q + i));
        const __m256i pairs = kHasMinimum ? _mm256_maddubs_epi16(weights, q)
                                          : _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(q, weights));
        const __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        sum[j] = _mm256_fmadd_ps(dot, _mm256_permutevar8x32_ps(scale[j], groups), sum[j]);
      }
      groups = _mm256_add_epi32(groups, _mm256_set1_epi32(2));
    }
    if constexpr (kHasMinimum) {
      const __m256 sums = _mm256_loadu_ps(row.x.sum + 8 * half);
      for (int j = 0; j < J; ++j) sum[j] = _mm256_fnmadd_ps(_mm256_load_ps(w[j].minimum + 8 * half), sums, sum[j]);
    }
  }
}

#endif

/// J outputs of R rows; `chunk` is the bytes of 256 weights.
template <bool kHasMinimum, int R, int J>
void dot_integers_block(Unpack unpack, size_t chunk, const char* w, size_t stride, size_t k, const ActivationBlock* x,
                        size_t x_stride, float* y, size_t y_stride) {
  IntegerSum sum[R][J];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < J; ++j) sum[r][j] = no_sum();
  Unpacked weights[J];
  for (size_t i = 0; i < k; i += kLargestBlock, w += chunk, ++x) {
    for (int j = 0; j < J; ++j) {
      const char* row = w + size_t(j) * stride;
      for (size_t line = 0; line < chunk; line += 64) __builtin_prefetch(row + size_t(J) * stride + line, 0, 2);
      unpack(row, min_of(kLargestBlock, k - i), weights[j]);
    }
    for (int r = 0; r < R; ++r) add_products_of_256<kHasMinimum, J>(weights, IntegerRow(x[size_t(r) * x_stride]), sum[r]);
  }
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < J; ++j) y[size_t(r) * y_stride + size_t(j)] = total_of(sum[r][j]);
}

template <bool kHasMinimum, int R>
void dot_integers_fixed(Unpack unpack, size_t chunk, const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x,
                        size_t x_stride, float* y, size_t y_stride) {
  constexpr int kJ = R <= 4 ? 4 : kManyRegisters ? 3 : 2;
  size_t j = 0;
  for (; j + kJ <= n; j += kJ)
    dot_integers_block<kHasMinimum, R, kJ>(unpack, chunk, w + j * stride, stride, k, x, x_stride, y + j, y_stride);
  for (; j < n; ++j)
    dot_integers_block<kHasMinimum, R, 1>(unpack, chunk, w + j * stride, stride, k, x, x_stride, y + j, y_stride);
}

template <DType kType>
void dot_integers(const void* weights, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, size_t rows,
                  float* y, size_t y_stride) {
  using Block = DecodedBlock<kType>;
  constexpr bool kMinimum = Block::kHasMinimum;
  constexpr size_t kChunk = row_bytes(kType, kLargestBlock);
  const char* w = static_cast<const char*>(weights);
  switch (rows) {
    case 1: return dot_integers_fixed<kMinimum, 1>(unpack<Block>, kChunk, w, stride, n, k, x, x_stride, y, y_stride);
    case 2: return dot_integers_fixed<kMinimum, 2>(unpack<Block>, kChunk, w, stride, n, k, x, x_stride, y, y_stride);
    case 3: return dot_integers_fixed<kMinimum, 3>(unpack<Block>, kChunk, w, stride, n, k, x, x_stride, y, y_stride);
    case 4: return dot_integers_fixed<kMinimum, 4>(unpack<Block>, kChunk, w, stride, n, k, x, x_stride, y, y_stride);
    case 5: return dot_integers_fixed<kMinimum, 5>(unpack<Block>, kChunk, w, stride, n, k, x, x_stride, y, y_stride);
    case 6: return dot_integers_fixed<kMinimum, 6>(unpack<Block>, kChunk, w, stride, n, k, x, x_stride, y, y_stride);
    case 7: return dot_integers_fixed<kMinimum, 7>(unpack<Block>, kChunk, w, stride, n, k, x, x_stride, y, y_stride);
    case 8: return dot_integers_fixed<kMinimum, 8>(unpack<Block>, kChunk, w, stride, n, k, x, x_stride, y, y_stride);
    default: return;
  }
}

#endif  // HWY_ARCH_X86

}  // namespace
}  // namespace vitrine
