#pragma once
// Products of a few rows of int8 activations with blocks of 32 nibbles in registers of 512 bits, which hold four outputs: 16
// bytes of each, from which the low nibbles and the high ones come for all at once. Per block, each of an output's four lanes
// sums eight products exactly in integers; the lane then enters its f32 sum as in simd/dot_int8.h. The scales of eight outputs
// are widened together.
#include "kernels/simd/dot_int8.h"

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
namespace vitrine {
namespace {

constexpr size_t kQuad = 4, kTwoQuads = 2 * kQuad;

/// Where the blocks of two quads of outputs lie, a distance of each from the first; outputs behind the last are the last once
/// more.
template <bool kAll>
struct EightBlocks {
  const char* quad[2];
  size_t to[2][kQuad];
  HWY_INLINE EightBlocks(const char* w, size_t stride, size_t n) : quad{w, kAll ? w + kQuad * stride : w} {
    for (size_t i = 0; i < 2 * kQuad; ++i) to[i / kQuad][i % kQuad] = kAll ? i % kQuad * stride : min_of(i, n - 1) * stride;
  }
  HWY_INLINE void next(size_t bytes) {
    quad[0] += bytes;
    quad[1] += bytes;
  }
  HWY_INLINE const char* operator[](size_t i) const { return quad[i / kQuad] + to[kAll ? 0 : i / kQuad][i % kQuad]; }
};

/// Scales and minima of eight blocks, in order.
template <DType kType>
struct EightScales {
  __m256 scale, minimum;
  template <bool kAll>
  HWY_INLINE explicit EightScales(const EightBlocks<kAll>& blocks) {
    __m128i words[kTwoQuads];
    for (size_t i = 0; i < kTwoQuads; ++i) words[i] = _mm_cvtsi32_si128(int(bits_32(blocks[i])));
    for (size_t i = 0; i < kTwoQuads; i += 2) {
      const bool bytes = kType == DType::mxfp4;
      words[i] = bytes ? _mm_unpacklo_epi8(words[i], words[i + 1]) : _mm_unpacklo_epi16(words[i], words[i + 1]);
    }
    if constexpr (kType == DType::mxfp4) {
      const __m128i fours[2] = {_mm_unpacklo_epi16(words[0], words[2]), _mm_unpacklo_epi16(words[4], words[6])};
      const __m256i e = _mm256_cvtepu8_epi32(_mm_unpacklo_epi32(fours[0], fours[1]));
      const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
      const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);  // as BlockMXFP4::scale_of
      scale = _mm256_castsi256_ps(_mm256_mask_mov_epi32(normal, _mm256_cmplt_epi32_mask(e, _mm256_set1_epi32(2)), subnormal));
    } else {
      const __m128i a = _mm_unpacklo_epi32(words[0], words[2]), b = _mm_unpacklo_epi32(words[4], words[6]);
      scale = _mm256_cvtph_ps(_mm_unpacklo_epi64(a, b));
      if constexpr (pack_form<kType>().minimum) minimum = _mm256_cvtph_ps(_mm_unpackhi_epi64(a, b));
    }
  }
  static HWY_INLINE __m512 of_quad(__m256 numbers, int quad) {
    const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutexvar_ps(_mm512_add_epi32(order, _mm512_set1_epi32(int(kQuad) * quad)), _mm512_castps256_ps512(numbers));
  }
};

/// A block of each of four outputs, as unsigned bytes: the weights of the low nibbles and of the high ones.
template <DType kType>
struct Quad {
  static constexpr PackForm kForm = pack_form<kType>();
  __m512i low, high;
  /// Of the blocks from `first` on.
  template <bool kAll>
  HWY_INLINE Quad(const EightBlocks<kAll>& blocks, size_t first) {
    __m512i bytes = _mm512_castsi128_si512(bytes_16(blocks[first] + kForm.nibbles));
    bytes = _mm512_inserti32x4(bytes, bytes_16(blocks[first + 1] + kForm.nibbles), 1);
    bytes = _mm512_inserti32x4(bytes, bytes_16(blocks[first + 2] + kForm.nibbles), 2);
    bytes = _mm512_inserti32x4(bytes, bytes_16(blocks[first + 3] + kForm.nibbles), 3);
    const __m512i nibble = _mm512_set1_epi8(15);
    low = _mm512_and_si512(bytes, nibble);
    high = _mm512_and_si512(_mm512_srli_epi64(bytes, 4), nibble);
    if constexpr (kForm.fifth != 0) {
      low = _mm512_mask_add_epi8(low, fifth(blocks, first, 0), low, _mm512_set1_epi8(16));
      high = _mm512_mask_add_epi8(high, fifth(blocks, first, 2), high, _mm512_set1_epi8(16));
    }
    if constexpr (kForm.table != nullptr) {
      const __m512i table = _mm512_xor_si512(
          _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kForm.table))), _mm512_set1_epi8(-128));
      low = _mm512_shuffle_epi8(table, low);
      high = _mm512_shuffle_epi8(table, high);
    }
  }

 private:
  template <bool kAll>
  static HWY_INLINE uint64_t fifth(const EightBlocks<kAll>& blocks, size_t first, size_t at) {
    uint64_t bits = 0;
    for (size_t i = 0; i < kQuad; ++i) {
      uint16_t of_output;
      memcpy(&of_output, blocks[first + i] + kForm.fifth + at, 2);
      bits |= uint64_t{of_output} << (16 * i);
    }
    return bits;
  }
};

/// A block of activations, for each of four outputs.
template <DType kType>
struct QuadRow {
  static constexpr PackForm kForm = pack_form<kType>();
  __m512i low, high, correction;
  __m256 scale;
  __m512 sum;
  HWY_INLINE QuadRow(const ActivationBlock& b, size_t part)
      : low(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b.q + part * kBlock)))),
        high(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b.q + part * kBlock + 16)))),
        correction(_mm512_setzero_si512()),
        scale(_mm256_set1_ps(b.scale[part])),
        sum(_mm512_setzero_ps()) {
    if constexpr (kForm.offset != 0) {
      const __m512i offset = _mm512_set1_epi8(char(kForm.offset));
      correction = _mm512_sub_epi32(correction, _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(correction, offset, low), offset, high));
    }
    if constexpr (kForm.minimum) sum = _mm512_maskz_mov_ps(0x1111, _mm512_set1_ps(b.sum[2 * part] + b.sum[2 * part + 1]));
  }
};

/// The n outputs of a quad's sums.
HWY_INLINE void store_quad(__m512 sum, float* y, size_t n) {
  sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0x4e));
  sum = _mm512_add_ps(sum, _mm512_permute_ps(sum, 0xb1));
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  // Not of 128 bits: GCC 12 makes an extraction of that, which touches what its mask leaves out.
  _mm512_mask_storeu_ps(y, __mmask16(n < kQuad ? (1U << n) - 1 : 15U), _mm512_permutexvar_ps(first, sum));
}

/// n outputs, all eight of two quads or fewer, of R rows. The eight behind all eight are asked for as these are read.
template <DType kType, int R, bool kAll>
void nibbles_block(const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, float* y,
                   size_t y_stride) {
  constexpr PackForm kForm = pack_form<kType>();
  EightBlocks<kAll> blocks(w, stride, n);
  const char* ahead = ahead_of_rows(w, kTwoQuads * stride);
  __m512 sum[2][R];
  for (auto& of_quad : sum)
    for (__m512& one : of_quad) one = _mm512_setzero_ps();
  for (; k > 0; ++x) {
    const size_t here = min_of(k, ActivationBlock::kElements);
    k -= here;
    for (size_t part = 0; part < here / kBlock; ++part, blocks.next(kForm.bytes)) {
      if constexpr (kAll) {
        ask_for(ahead, kTwoQuads * kForm.bytes);
        ahead += kTwoQuads * kForm.bytes;
      }
      const EightScales<kType> scales(blocks);
      const Quad<kType> quads[2] = {Quad<kType>(blocks, 0), Quad<kType>(blocks, kQuad)};
      for (int r = 0; r < R; ++r) {
        const QuadRow<kType> row(x[size_t(r) * x_stride], part);
        const __m256 by_row = _mm256_mul_ps(scales.scale, row.scale);
        for (int q = 0; q < 2; ++q) {
          const __m512i lanes =
              _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(row.correction, quads[q].low, row.low), quads[q].high, row.high);
          sum[q][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(lanes), EightScales<kType>::of_quad(by_row, q), sum[q][r]);
          if constexpr (kForm.minimum)
            sum[q][r] = _mm512_fmadd_ps(EightScales<kType>::of_quad(scales.minimum, q), row.sum, sum[q][r]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    float* of_row = y + size_t(r) * y_stride;
    store_quad(sum[0][r], of_row, n);
    if (n > kQuad) store_quad(sum[1][r], of_row + kQuad, n - kQuad);
  }
}

template <DType kType>
void dot_rows_nibbles(const void* weights, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride,
                      size_t rows, float* y, size_t y_stride) {
  const char* w = static_cast<const char*>(weights);
  with_rows(rows, [&](auto r) HWY_ATTR {
    constexpr int kRows = decltype(r)::value;
    size_t j = 0;
    for (; j + kTwoQuads <= n; j += kTwoQuads)
      nibbles_block<kType, kRows, true>(w + j * stride, stride, kTwoQuads, k, x, x_stride, y + j, y_stride);
    if (j < n) nibbles_block<kType, kRows, false>(w + j * stride, stride, n - j, k, x, x_stride, y + j, y_stride);
  });
}

}  // namespace
}  // namespace vitrine
#endif
