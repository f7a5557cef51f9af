#pragma once
// Products of many rows with block weights, both sides int8. Per block of 32 inputs, or of 16 where the weights' scales are for
// so many, the products are summed exactly in integers and enter an f32 sum as scale(w) * scale(x) * integer, block after block;
// what minima take away follows. Lanes are rows of x: a row's bits cannot depend on its neighbours. The byte product wants x
// unsigned: 128 is added to each, and 128 times the sum of the block's weights is where the integer starts from.
#include "kernels/simd/dot_int8.h"
#include "kernels/simd/dot_integers.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/panel.h"

namespace vitrine {
namespace {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

constexpr size_t kInt8Outputs = 64, kInt8Depth = 1024;  // a tile of x and one of weights fit the first cache
constexpr size_t kInt8Blocks = kInt8Depth / kBlock;

/// A block of a panel: 32 weights as int8 in G groups that have a scale each, and where each group's integer sum starts.
template <int G, bool kHasMinimum>
struct PanelBlock {
  float scale[G];
  int32_t start[G];  // -128 * sum of q
  int8_t q[kBlock];
};
template <int G>
struct PanelBlock<G, true> : PanelBlock<G, false> {
  float minimum[G];
};
/// What a panel's blocks are; they follow it.
struct alignas(64) PanelHead {
  int groups;
  bool has_minimum;
};
/// 32 inputs of 16 rows: four inputs of each row side by side, the rows' scales, and their sums of 16 inputs (ActivationBlock).
struct XBlock {
  uint8_t q[kBlock / 4][16][4];
  float scale[16];
  float sum[2][16];
};
// One block more keeps rows off one another's cache sets.
constexpr size_t kInt8Stride = kInt8Blocks + 1;

size_t int8_x_bytes(size_t rows, size_t k) { return (rows + 31) / 32 * 2 * (k / kBlock) * sizeof(XBlock); }

void int8_pack_x(const float* x, size_t x_stride, size_t row0, size_t n, size_t, size_t k, void* packed) {
  const size_t blocks = k / kBlock;
  for (size_t row = row0; row < row0 + n; row += 16) {
    XBlock* tile = static_cast<XBlock*>(packed) + row / 16 * blocks;
    const size_t here = min_of(16, row0 + n - row);
    ActivationBlock block;
    for (size_t r = 0; r < 16; ++r)
      for (size_t b = 0; b < blocks; ++b) {
        constexpr size_t kParts = ActivationBlock::kElements / kBlock;
        static_assert(kInt8Depth % ActivationBlock::kElements == 0);
        XBlock& to = tile[b];
        const size_t part = b % kParts;
        if (part == 0) {
          memset(&block, 0, sizeof block);  // rows that there are not
          if (r < here) quantise_int8(x + (row + r) * x_stride + b * kBlock, min_of(blocks - b, kParts) * kBlock, &block);
        }
        const int8_t offset = r < here ? int8_t(-128) : int8_t(0);
        for (size_t i = 0; i < kBlock; ++i) block.q[part * kBlock + i] = int8_t(block.q[part * kBlock + i] ^ offset);
        for (size_t i = 0; i < kBlock / 4; ++i) memcpy(to.q[i][r], block.q + part * kBlock + 4 * i, 4);
        to.scale[r] = block.scale[part];
        for (size_t half = 0; half < 2; ++half) to.sum[half][r] = block.sum[2 * part + half];
      }
  }
}

HWY_INLINE int32_t sum_of_eight(__m256i v) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
HWY_INLINE int32_t sum_of_four(__m128i v) {
  const __m128i two = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

template <bool kNibbles>
void int8_expand_rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, PanelHead* head) {
  *head = {1, false};
  auto* panel = reinterpret_cast<PanelBlock<1, false>*>(head + 1);
  constexpr size_t kBytes = kNibbles ? sizeof(BlockQ4_0) : sizeof(BlockQ8_0);
  for (size_t j = 0; j < n; ++j) {
    const char* block = w + j * stride + k0 / kBlock * kBytes;
    for (size_t b = 0; b < depth / kBlock; ++b, block += kBytes) {
      PanelBlock<1, false>& out = panel[j * kInt8Stride + b];
      __m256i q;
      if constexpr (kNibbles) {
        const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2));
        const __m256i halves = _mm256_inserti128_si256(_mm256_castsi128_si256(both), _mm_srli_epi16(both, 4), 1);
        q = _mm256_sub_epi8(_mm256_and_si256(halves, _mm256_set1_epi8(15)), _mm256_set1_epi8(8));
      } else {
        q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2));
      }
      const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(-128), q);  // 128 * q, by fours
      out.start[0] = -sum_of_eight(sums);
      out.scale[0] = _mm_cvtss_f32(_mm_cvtph_ps(every_half(block)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q), q);
    }
  }
}
template <class Block>
void int8_expand_rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, PanelHead* head) {
  constexpr int G = kBlock / Block::kGroup;
  *head = {G, Block::kHasMinimum};
  using Out = PanelBlock<G, Block::kHasMinimum>;
  constexpr size_t kBytes = kLargestBlock / Block::kElements * Block::kBytes;
  Unpacked weights;
  for (size_t j = 0; j < n; ++j) {
    const char* row = w + j * stride + k0 / Block::kElements * Block::kBytes;
    for (size_t i = 0; i < depth; i += kLargestBlock, row += kBytes) {
      const size_t here = min_of(kLargestBlock, depth - i);
      unpack<Block>(row, here, weights);
      Out* out = reinterpret_cast<Out*>(head + 1) + j * kInt8Stride + i / kBlock;
      for (size_t b = 0; b < here / kBlock; ++b, ++out) {
        const __m256i q = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights.q + b * kBlock));
        const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(-128), q);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out->q), q);
        if constexpr (G == 1) {
          out->start[0] = -sum_of_eight(sums);
        } else {
          out->start[0] = -sum_of_four(_mm256_castsi256_si128(sums));
          out->start[1] = -sum_of_four(_mm256_extracti128_si256(sums, 1));
        }
        for (int g = 0; g < G; ++g) {
          out->scale[g] = weights.scale[G * b + size_t(g)];
          if constexpr (Block::kHasMinimum) out->minimum[g] = weights.minimum[G * b + size_t(g)];
        }
      }
    }
  }
}

void int8_expand(DType type, const void* weights, size_t stride, bool, size_t n, size_t k0, size_t depth, void* panel) {
  const char* w = static_cast<const char*>(weights);
  auto* head = static_cast<PanelHead*>(panel);
  switch (type) {
    case DType::q8_0: return int8_expand_rows<false>(w, stride, n, k0, depth, head);
    case DType::q4_0: return int8_expand_rows<true>(w, stride, n, k0, depth, head);
#define VITRINE_ROWS(name, elements, bytes, number) \
  case DType::name: return int8_expand_rows<DecodedBlock<DType::name>>(w, stride, n, k0, depth, head);
      VITRINE_DECODED_TYPES(VITRINE_ROWS)
#undef VITRINE_ROWS
    default: return;
  }
}

/// M outputs of 16 rows over `blocks` blocks. The block of x stays in eight registers while the outputs pass.
template <int G, bool kHasMinimum, int M>
void int8_tile(const PanelBlock<G, kHasMinimum>* panel, const XBlock* x, Asking& next, size_t blocks, size_t rows, float* y,
               size_t y_stride, bool add) {
  __m512 sum[M];
  for (int m = 0; m < M; ++m) sum[m] = _mm512_setzero_ps();
  for (size_t b = 0; b < blocks; ++b) {
    next.line();
    __m512i value[kBlock / 4];
    for (size_t i = 0; i < kBlock / 4; ++i) value[i] = _mm512_loadu_si512(x[b].q[i]);
    const __m512 scale = _mm512_loadu_ps(x[b].scale);
    __m512 x_sum[G];
    if constexpr (kHasMinimum) {
      for (int g = 0; g < G; ++g) x_sum[g] = _mm512_loadu_ps(x[b].sum[g]);
      if constexpr (G == 1) x_sum[0] = _mm512_add_ps(x_sum[0], _mm512_loadu_ps(x[b].sum[1]));
    }
    // Four outputs abreast: a chain of byte products alone waits for its own latency. Left to itself the compiler keeps the
    // sums in memory.
    constexpr int kAbreast = M % 4 == 0 ? 4 : 1;
    constexpr size_t kFours = kBlock / 4 / G;  // of a group
    HWY_UNROLL(4)
    for (int m = 0; m < M; m += kAbreast) {
      const PanelBlock<G, kHasMinimum>* w[kAbreast];
      for (int a = 0; a < kAbreast; ++a) w[a] = panel + size_t(m + a) * kInt8Stride + b;
      for (int g = 0; g < G; ++g) {
        __m512i dot[kAbreast];
        for (int a = 0; a < kAbreast; ++a) dot[a] = _mm512_set1_epi32(w[a]->start[g]);
        for (size_t i = size_t(g) * kFours; i < size_t(g + 1) * kFours; ++i)
          for (int a = 0; a < kAbreast; ++a) {
            int32_t four;
            memcpy(&four, w[a]->q + 4 * i, 4);
            dot[a] = _mm512_dpbusd_epi32(dot[a], value[i], _mm512_set1_epi32(four));
          }
        for (int a = 0; a < kAbreast; ++a) {
          const __m512 both = _mm512_mul_ps(_mm512_set1_ps(w[a]->scale[g]), scale);
          sum[m + a] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[a]), both, sum[m + a]);
          if constexpr (kHasMinimum) sum[m + a] = _mm512_fnmadd_ps(_mm512_set1_ps(w[a]->minimum[g]), x_sum[g], sum[m + a]);
        }
      }
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

/// Sixteen outputs, or the rest of a matrix, eight or one at a time.
template <int G, bool kHasMinimum>
void int8_outputs(const void* blocks_of_panel, const XBlock* x, Asking& asking, size_t blocks, size_t rows, size_t n, float* y,
                  size_t y_stride, bool add) {
  const auto* panel = static_cast<const PanelBlock<G, kHasMinimum>*>(blocks_of_panel);
  for (size_t j = 0; j < n;) {
    const size_t outputs = n - j >= 16 ? 16 : n - j >= 8 ? 8 : 1;
    const auto tile = outputs == 16  ? int8_tile<G, kHasMinimum, 16>
                      : outputs == 8 ? int8_tile<G, kHasMinimum, 8>
                                     : int8_tile<G, kHasMinimum, 1>;
    tile(panel + j * kInt8Stride, x, asking, blocks, rows, y + j, y_stride, add);
    j += outputs;
  }
}

void int8_multiply(const void* panel, const float*, size_t, const void* packed, size_t, size_t row0, size_t n_rows, size_t k,
                   size_t k0, size_t depth, bool, size_t n, float* y, size_t y_stride, bool add, const ReadNext& next) {
  Asking asking(next);
  const auto* head = static_cast<const PanelHead*>(panel);
  const size_t blocks = depth / kBlock;
  for (size_t row = row0; row < row0 + n_rows; row += 16) {
    const size_t rows = min_of(16, row0 + n_rows - row);
    const XBlock* x = static_cast<const XBlock*>(packed) + row / 16 * (k / kBlock) + k0 / kBlock;
    const auto outputs = head->groups == 1   ? head->has_minimum ? int8_outputs<1, true> : int8_outputs<1, false>
                           : head->has_minimum ? int8_outputs<2, true>
                                             : int8_outputs<2, false>;
    outputs(head + 1, x, asking, blocks, rows, n, y + row * y_stride, y_stride, add);
  }
}

constexpr PanelKernels kPanelInt8 = {.outputs = kInt8Outputs,
                                     .depth = kInt8Depth,
                                     .panel_bytes = sizeof(PanelHead) + kInt8Outputs * kInt8Stride * sizeof(PanelBlock<2, true>),
                                     .x_bytes = int8_x_bytes,
                                     .pack_x = int8_pack_x,
                                     .expand = int8_expand,
                                     .multiply = int8_multiply};

#else

constexpr PanelKernels kPanelInt8 = {};  // f32 is as fast without byte products of four

#endif

}  // namespace
}  // namespace vitrine
