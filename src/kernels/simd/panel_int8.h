#pragma once
// Products of many rows with block weights, both sides int8. Per block of 32 inputs the products are summed exactly in
// integers and enter an f32 sum as scale(w) * scale(x) * integer, block after block. Lanes are rows of x: a row's bits cannot
// depend on its neighbours. The byte product wants x unsigned: 128 is added to each, and 128 times the sum of the block's
// weights is where the integer starts from.
#include "kernels/simd/dot_int8.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/panel.h"

namespace vitrine {
namespace {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

constexpr size_t kInt8Outputs = 64, kInt8Depth = 1024;  // a tile of x and one of weights fit the first cache
constexpr size_t kInt8Blocks = kInt8Depth / kBlock;

/// A block of a panel: 32 weights as int8, and where the integer sum starts.
struct PanelBlock {
  float scale;
  int32_t start;  // -128 * sum of q
  int8_t q[kBlock];
};
/// 32 inputs of 16 rows: four inputs of each row side by side, and the rows' scales.
struct XBlock {
  uint8_t q[kBlock / 4][16][4];
  float scale[16];
};
// One block more keeps rows off one another's cache sets.
constexpr size_t kInt8Stride = kInt8Blocks + 1;

size_t int8_x_bytes(size_t rows, size_t k) { return (rows + 31) / 32 * 2 * (k / kBlock) * sizeof(XBlock); }

void int8_pack_x(const float* x, size_t x_stride, size_t row0, size_t n, size_t, size_t k, void* packed) {
  const size_t blocks = k / kBlock;
  for (size_t row = row0; row < row0 + n; row += 16) {
    XBlock* tile = static_cast<XBlock*>(packed) + row / 16 * blocks;
    const size_t here = min_of(16, row0 + n - row);
    for (size_t b = 0; b < blocks; ++b) {
      for (size_t r = 0; r < here; ++r) {
        ActivationBlock q;
        quantise_int8(x + (row + r) * x_stride + b * kBlock, kBlock, &q);
        for (size_t i = 0; i < kBlock; ++i) q.q[i] = int8_t(q.q[i] ^ -128);
        for (size_t i = 0; i < kBlock / 4; ++i) memcpy(tile[b].q[i][r], q.q + 4 * i, 4);
        tile[b].scale[r] = q.scale;
      }
      for (size_t r = here; r < 16; ++r) {  // rows that there are not
        for (size_t i = 0; i < kBlock / 4; ++i) memset(tile[b].q[i][r], 0, 4);
        tile[b].scale[r] = 0;
      }
    }
  }
}

template <bool kNibbles>
void int8_expand_rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, PanelBlock* panel) {
  constexpr size_t kBytes = kNibbles ? sizeof(BlockQ4_0) : sizeof(BlockQ8_0);
  for (size_t j = 0; j < n; ++j) {
    const char* block = w + j * stride + k0 / kBlock * kBytes;
    for (size_t b = 0; b < depth / kBlock; ++b, block += kBytes) {
      PanelBlock& out = panel[j * kInt8Stride + b];
      __m256i q;
      if constexpr (kNibbles) {
        const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2));
        const __m256i halves = _mm256_inserti128_si256(_mm256_castsi128_si256(both), _mm_srli_epi16(both, 4), 1);
        q = _mm256_sub_epi8(_mm256_and_si256(halves, _mm256_set1_epi8(15)), _mm256_set1_epi8(8));
      } else {
        q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2));
      }
      const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(-128), q);  // 128 * q, by fours
      const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
      const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
      out.start = -_mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
      out.scale = _mm_cvtss_f32(_mm_cvtph_ps(every_half(block)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q), q);
    }
  }
}
void int8_expand(DType type, const void* weights, size_t stride, bool, size_t n, size_t k0, size_t depth, void* panel) {
  const char* w = static_cast<const char*>(weights);
  if (type == DType::q8_0) return int8_expand_rows<false>(w, stride, n, k0, depth, static_cast<PanelBlock*>(panel));
  return int8_expand_rows<true>(w, stride, n, k0, depth, static_cast<PanelBlock*>(panel));
}

/// M outputs of 16 rows over `blocks` blocks. The block of x stays in eight registers while the outputs pass.
template <int M>
void int8_tile(const PanelBlock* panel, const XBlock* x, Asking& next, size_t blocks, size_t rows, float* y, size_t y_stride,
               bool add) {
  __m512 sum[M];
  for (int m = 0; m < M; ++m) sum[m] = _mm512_setzero_ps();
  for (size_t b = 0; b < blocks; ++b) {
    next.line();
    __m512i value[kBlock / 4];
    for (size_t i = 0; i < kBlock / 4; ++i) value[i] = _mm512_loadu_si512(x[b].q[i]);
    const __m512 scale = _mm512_loadu_ps(x[b].scale);
    // Four outputs abreast: a chain of byte products alone waits for its own latency. Left to itself the compiler keeps the
    // sums in memory.
    constexpr int kAbreast = M % 4 == 0 ? 4 : 1;
    HWY_UNROLL(4)
    for (int m = 0; m < M; m += kAbreast) {
      const PanelBlock* w[kAbreast];
      __m512i dot[kAbreast];
      for (int a = 0; a < kAbreast; ++a) {
        w[a] = panel + size_t(m + a) * kInt8Stride + b;
        dot[a] = _mm512_set1_epi32(w[a]->start);
      }
      for (size_t i = 0; i < kBlock / 4; ++i)
        for (int a = 0; a < kAbreast; ++a) {
          int32_t four;
          memcpy(&four, w[a]->q + 4 * i, 4);
          dot[a] = _mm512_dpbusd_epi32(dot[a], value[i], _mm512_set1_epi32(four));
        }
      for (int a = 0; a < kAbreast; ++a)
        sum[m + a] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[a]), _mm512_mul_ps(_mm512_set1_ps(w[a]->scale), scale), sum[m + a]);
    }
  }
  Vec square[kLanes];
  for (size_t m = 0; m < kLanes; ++m) square[m] = m < M ? Vec{sum[m < M ? m : 0]} : hn::Zero(Tag());
  transpose(square);
  for (size_t r = 0; r < min_of(rows, kLanes); ++r) {
    float* out = y + r * y_stride;
    store_up_to(add ? hn::Add(load_up_to(out, M), square[r]) : square[r], out, M);
  }
}

using Int8Tile = void (*)(const PanelBlock*, const XBlock*, Asking&, size_t, size_t, float*, size_t, bool);
/// Sixteen outputs, or the rest of a matrix, eight or one at a time.
void int8_multiply(const void* panel, const float*, size_t, const void* packed, size_t, size_t row0, size_t n_rows, size_t k,
                   size_t k0, size_t depth, bool, size_t n, float* y, size_t y_stride, bool add, const ReadNext& next) {
  Asking asking(next);
  const size_t blocks = depth / kBlock;
  for (size_t row = row0; row < row0 + n_rows; row += 16) {
    const size_t rows = min_of(16, row0 + n_rows - row);
    const XBlock* x = static_cast<const XBlock*>(packed) + row / 16 * (k / kBlock) + k0 / kBlock;
    for (size_t j = 0; j < n;) {
      const size_t outputs = n - j >= 16 ? 16 : n - j >= 8 ? 8 : 1;
      const Int8Tile tile = outputs == 16 ? int8_tile<16> : outputs == 8 ? int8_tile<8> : int8_tile<1>;
      tile(static_cast<const PanelBlock*>(panel) + j * kInt8Stride, x, asking, blocks, rows, y + row * y_stride + j, y_stride,
           add);
      j += outputs;
    }
  }
}

constexpr PanelKernels kPanelInt8 = {.outputs = kInt8Outputs,
                                     .depth = kInt8Depth,
                                     .panel_bytes = kInt8Outputs * kInt8Stride * sizeof(PanelBlock),
                                     .x_bytes = int8_x_bytes,
                                     .pack_x = int8_pack_x,
                                     .expand = int8_expand,
                                     .multiply = int8_multiply};

#else

constexpr PanelKernels kPanelInt8 = {};  // f32 is as fast without byte products of four

#endif

}  // namespace
}  // namespace vitrine
