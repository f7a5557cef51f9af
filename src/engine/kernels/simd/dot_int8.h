#pragma once
// Products of a few rows of int8 activations with block weights. Per block of 32, each of eight lanes sums four products
// exactly in integers; the lane then enters its f32 sum as scale(w) * scale(x) * integer, block after block. So bits
// depend on neither the rows nor the cuts. The byte products want one operand unsigned: see each Pack.
#include "kernels/simd/pack_form.h"
#include "kernels/simd/vec.h"
#if HWY_ARCH_ARM
#include "kernels/neon/pack.h"
#endif

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

HWY_INLINE __m128i bytes_16(const char* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
HWY_INLINE uint32_t bits_32(const char* p) {
  uint32_t bits;
  memcpy(&bits, p, 4);
  return bits;
}

#if HWY_TARGET <= HWY_AVX3

/// Blocks of two outputs side by side in one register. Weights are made unsigned by an offset; offset * x is taken out again in
/// each lane. Types of nibbles are only unpacked by it: simd/dot_nibbles.h multiplies them.
template <DType kType>
struct Pack {
  static constexpr PackForm kForm = pack_form<kType>();
  static constexpr bool kSigned = false;
  static constexpr int kOffset = kForm.offset;
  static constexpr size_t kOutputs = 2, kBytes = kForm.bytes;
  using Sum = __m512;
  struct Row {  // a block of activations, in both halves
    __m512i q, correction;
    __m512 scale;
    HWY_INLINE Row(const ActivationBlock& b, size_t part)
        : q(_mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.q + part * kBlock)))),
          correction(_mm512_setzero_si512()),
          scale(_mm512_set1_ps(b.scale[part])) {
      if constexpr (kOffset != 0)
        correction = _mm512_sub_epi32(correction, _mm512_dpbusd_epi32(correction, _mm512_set1_epi8(char(kOffset)), q));
    }
  };
  __m512i q;
  __m512 scale, minimum;
  static HWY_INLINE __m512 halves(const char* first, const char* second) {
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(every_half(first)), every_half(second), 1));
  }
  Pack() = default;
  HWY_INLINE Pack(const char* first, const char* second) {
    if constexpr (kType == DType::mxfp4) {
      scale = _mm512_insertf32x8(_mm512_set1_ps(BlockMXFP4::scale_of(uint8_t(*first))),
                                 _mm256_set1_ps(BlockMXFP4::scale_of(uint8_t(*second))), 1);
    } else {
      scale = halves(first, second);
    }
    if constexpr (kForm.minimum) minimum = halves(first + 2, second + 2);
    if constexpr (kForm.nibbles == 0) {
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first + 2));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second + 2));
      q = _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1), _mm512_set1_epi8(-128));
    } else {
      const __m256i a = _mm256_broadcastsi128_si256(bytes_16(first + kForm.nibbles));
      const __m256i b = _mm256_broadcastsi128_si256(bytes_16(second + kForm.nibbles));
      const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
      const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);  // low nibbles, high nibbles
      q = _mm512_and_si512(_mm512_srlv_epi64(both, shift), _mm512_set1_epi8(15));
      if constexpr (kForm.fifth != 0) {
        const uint64_t fifth = bits_32(first + kForm.fifth) | uint64_t{bits_32(second + kForm.fifth)} << 32;
        q = _mm512_mask_add_epi8(q, fifth, q, _mm512_set1_epi8(16));
      }
      if constexpr (kForm.table != nullptr) {
        const __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kForm.table)));
        q = _mm512_shuffle_epi8(_mm512_xor_si512(table, _mm512_set1_epi8(-128)), q);
      }
    }
  }
  /// One of the two outputs' numbers.
  static HWY_INLINE float of_output(__m512 numbers, size_t output) {
    return _mm512_cvtss_f32(output == 0 ? numbers : _mm512_shuffle_f32x4(numbers, numbers, 2));
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
  /// Four of them, in the same order of additions.
  static HWY_INLINE void store_four(Sum a, Sum b, Sum c, Sum d, float* y) {
    const auto halves = [](Sum p, Sum q) HWY_ATTR {  // of each of four outputs, four numbers
      return _mm512_add_ps(_mm512_shuffle_f32x4(p, q, 0x88), _mm512_shuffle_f32x4(p, q, 0xdd));
    };
    const __m512 first = halves(a, b), second = halves(c, d);
    const __m512 pairs = _mm512_add_ps(_mm512_shuffle_ps(first, second, 0x44), _mm512_shuffle_ps(first, second, 0xee));
    const __m512 sums = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0xb1));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm256_storeu_ps(y, _mm512_castps512_ps256(_mm512_permutexvar_ps(order, sums)));
  }
};
/// Packs at a time for R rows: R * packs sums, and a weight and a scale per pack, in 32 registers.
template <int R>
constexpr int packs_at_a_time() {
  return R <= 4 ? 4 : R == 5 ? 3 : 2;
}

#else

/// One output. The byte product wants w unsigned. Types of signed bytes: |w| is, and x takes w's sign; the pairs of products, at
/// most 2 * 128 * 127, fit in 16 bits. Others: w is made so by an offset, and offset * x is taken out in each lane.
template <DType kType>
struct Pack {
  static constexpr PackForm kForm = pack_form<kType>();
  static constexpr bool kSigned = kForm.offset == 128;
  static constexpr int kOffset = kSigned ? 0 : kForm.offset;
  static constexpr size_t kOutputs = 1, kBytes = kForm.bytes;
  using Sum = __m256;
  static HWY_INLINE __m256i dot(__m256i u, __m256i x) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), _mm256_set1_epi16(1));
  }
  struct Row {
    __m256i q, correction;
    __m256 scale, sum;
    HWY_INLINE Row(const ActivationBlock& b, size_t part)
        : q(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.q + part * kBlock))),
          correction(_mm256_setzero_si256()),
          scale(_mm256_set1_ps(b.scale[part])),
          sum(_mm256_setzero_ps()) {
      if constexpr (kOffset != 0) correction = dot(_mm256_set1_epi8(char(kOffset)), q);
      if constexpr (kForm.minimum) sum = _mm256_zextps128_ps256(_mm_set_ss(b.sum[2 * part] + b.sum[2 * part + 1]));
    }
  };
  __m256i q;
  __m256 scale, minimum;
  Pack() = default;
  HWY_INLINE Pack(const char* block, const char*) {
    if constexpr (kType == DType::mxfp4) {
      scale = _mm256_set1_ps(BlockMXFP4::scale_of(uint8_t(*block)));
    } else {
      scale = _mm256_cvtph_ps(every_half(block));
    }
    if constexpr (kForm.minimum) minimum = _mm256_cvtph_ps(every_half(block + 2));
    if constexpr (kForm.nibbles == 0) {
      q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2));
    } else {
      const __m256i both = _mm256_broadcastsi128_si256(bytes_16(block + kForm.nibbles));
      q = _mm256_and_si256(_mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
      if constexpr (kForm.fifth != 0) {
        const __m256i bytes = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
        const __m256i bit = _mm256_set1_epi64x(int64_t(0x8040201008040201));
        const __m256i own =
            _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(int(bits_32(block + kForm.fifth))), bytes), bit);
        q = _mm256_or_si256(q, _mm256_and_si256(_mm256_cmpeq_epi8(own, bit), _mm256_set1_epi8(16)));
      }
      if constexpr (kForm.table != nullptr)
        q = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kForm.table))), q);
    }
  }
  static HWY_INLINE float of_output(__m256 numbers, size_t) { return _mm256_cvtss_f32(numbers); }
  static HWY_INLINE Sum zero() { return _mm256_setzero_ps(); }
  HWY_INLINE Sum add_to(Sum sum, const Row& x) const {
    __m256i lanes = kSigned ? dot(_mm256_abs_epi8(q), _mm256_sign_epi8(x.q, q)) : dot(q, x.q);
    if constexpr (kOffset != 0) lanes = _mm256_sub_epi32(lanes, x.correction);
    sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(lanes), _mm256_mul_ps(scale, x.scale), sum);
    if constexpr (kForm.minimum) sum = _mm256_fmadd_ps(minimum, x.sum, sum);
    return sum;
  }
  static HWY_INLINE void store(Sum sum, float* y, size_t) { *y = sum_of_eight(sum); }
};
template <int R>
constexpr int packs_at_a_time() {
  return R == 1 ? 4 : R <= 3 ? 2 : 1;
}

#endif

#endif  // HWY_ARCH_X86

/// P packs of outputs, the last of which may hold fewer than Pack::kOutputs: n outputs in all.
template <class W, int R, int P, bool kFirstCache = false>
HWY_INLINE void int8_block(const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, float* y,
                           size_t y_stride) {
  typename W::Sum sum[P][R];
  for (int p = 0; p < P; ++p)
    for (int r = 0; r < R; ++r) sum[p][r] = W::zero();
  const size_t to_second = n > 1 ? stride : 0;
  const char* ahead = ahead_of_rows(w, P * W::kOutputs * stride);
  for (; k > 0; ++x) {
    const size_t here = min_of(k, ActivationBlock::kElements);
    k -= here;
    for (size_t part = 0; part < here / kBlock; ++part, w += W::kBytes) {
      ask_for<kFirstCache>(ahead, P * W::kOutputs * W::kBytes);
      ahead += P * W::kOutputs * W::kBytes;
      W pack[P];
      for (int p = 0; p < P; ++p) {
        const char* first = w + size_t(p) * W::kOutputs * stride;
        pack[p] = W(first, first + to_second);
      }
      for (int r = 0; r < R; ++r) {
        const typename W::Row row(x[size_t(r) * x_stride], part);
        for (int p = 0; p < P; ++p) sum[p][r] = pack[p].add_to(sum[p][r], row);
      }
    }
  }
  if constexpr (P == 4 && W::kOutputs == 2) {
    for (int r = 0; r < R; ++r) W::store_four(sum[0][r], sum[1][r], sum[2][r], sum[3][r], y + size_t(r) * y_stride);
    return;
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p)
      W::store(sum[p][r], y + size_t(r) * y_stride + size_t(p) * W::kOutputs, n - size_t(p) * W::kOutputs);
}

template <class W, int R, int P, bool kFirstCache = false>
void int8_packs(const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, float* y,
                size_t y_stride) {
  constexpr size_t kMany = size_t(P) * W::kOutputs;
  size_t j = 0;
  for (; j + kMany <= n; j += kMany)
    int8_block<W, R, P, kFirstCache>(w + j * stride, stride, kMany, k, x, x_stride, y + j, y_stride);
  for (; j < n; j += W::kOutputs)
    int8_block<W, R, 1>(w + j * stride, stride, min_of(W::kOutputs, n - j), k, x, x_stride, y + j, y_stride);
}

template <class W, int R>
void int8_fixed(const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, float* y,
                size_t y_stride) {
  constexpr int kTwoOutputs = 2 / int(W::kOutputs);
  if (R == 1 && k > kShortRow) {
    if (2 * stride <= kNearRows) return int8_packs<W, R, kTwoOutputs, true>(w, stride, n, k, x, x_stride, y, y_stride);
    return int8_packs<W, R, kTwoOutputs>(w, stride, n, k, x, x_stride, y, y_stride);
  }
  int8_packs<W, R, packs_at_a_time<R>()>(w, stride, n, k, x, x_stride, y, y_stride);
}

template <class W>
void dot_rows_int8(const void* weights, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, size_t rows,
                   float* y, size_t y_stride) {
  const char* w = static_cast<const char*>(weights);
  with_rows(rows, [&](auto r) HWY_ATTR { int8_fixed<W, decltype(r)::value>(w, stride, n, k, x, x_stride, y, y_stride); });
}

}  // namespace
}  // namespace vitrine
