#pragma once
// Products of many rows with block weights, both sides int8. Per block of 32 inputs, or of 16 where the weights' scales are for
// so many, the products are summed exactly in integers and enter an f32 sum as scale(w) * scale(x) * integer, block after block;
// what minima take away follows. Lanes are rows of x: a row's bits cannot depend on its neighbors. The byte product wants x
// unsigned: 128 is added to each, and 128 times the sum of the block's weights is where the integer starts from.
#include "kernels/simd/panel.h"
#include "kernels/simd/quantize.h"
#include "kernels/simd/unpacked.h"

namespace vitrine {
namespace {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

constexpr size_t kInt8Outputs = 64, kInt8Depth = 1024;  // a tile of x and one of weights fit the first cache
constexpr size_t kInt8Blocks = kInt8Depth / kBlock;

/// Weights of one output in a panel as int8, in blocks of G groups that have a scale each, and where each group's integer sum
/// starts. Written 256 weights at a time, the last of which may be no weights.
template <int G, bool kHasMinimum>
struct PanelRow {
  float scale[kInt8Blocks * G];
  int32_t start[kInt8Blocks * G];  // -128 * sum of q
  int8_t q[kInt8Depth];
  char apart[64];  // keeps rows off one another's cache sets
};
template <int G>
struct PanelRow<G, true> : PanelRow<G, false> {
  float minimum[kInt8Blocks * G];
};
/// What a panel's rows are; they follow it.
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
          if (r < here) quantize_int8(x + (row + r) * x_stride + b * kBlock, min_of(blocks - b, kParts) * kBlock, &block);
        }
        const int8_t offset = r < here ? int8_t(-128) : int8_t(0);
        for (size_t i = 0; i < kBlock; ++i) block.q[part * kBlock + i] = int8_t(block.q[part * kBlock + i] ^ offset);
        for (size_t i = 0; i < kBlock / 4; ++i) memcpy(to.q[i][r], block.q + part * kBlock + 4 * i, 4);
        to.scale[r] = block.scale[part];
        for (size_t half = 0; half < 2; ++half) to.sum[half][r] = block.sum[2 * part + half];
      }
  }
}

/// 128 times the sums of 256 weights: of 16 groups, or of 8.
template <int kGroup>
HWY_INLINE void store_starts(const Bytes (&w)[kChunks], int32_t* start) {
  __m512i sums[4];
  for (int c = 0; c < 4; ++c) sums[c] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(-128), w[c]);
  const auto joined = [](__m512i low, __m512i high) HWY_ATTR { return _mm512_add_epi32(low, high); };
  const __m512i a = joined(_mm512_unpacklo_epi32(sums[0], sums[1]), _mm512_unpackhi_epi32(sums[0], sums[1]));
  const __m512i b = joined(_mm512_unpacklo_epi32(sums[2], sums[3]), _mm512_unpackhi_epi32(sums[2], sums[3]));
  // Number 4 l + c is that of the 16 weights 4 c + l.
  __m512i all = joined(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  if constexpr (kGroup == 16) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    all = _mm512_permutexvar_epi32(order, all);
    _mm512_storeu_si512(start, _mm512_sub_epi32(_mm512_setzero_si512(), all));
  } else {
    all = _mm512_add_epi32(all, _mm512_shuffle_i32x4(all, all, 0xb1));
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m256i eight = _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, all));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(start), _mm256_sub_epi32(_mm256_setzero_si256(), eight));
  }
}

template <DType kType>
void int8_expand_rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, PanelHead* head) {
  using Source = Unpacked256<kType>;
  constexpr int G = int(kBlock) / Source::kGroup;
  using Row = PanelRow<G, Source::kHasMinimum>;
  *head = {G, Source::kHasMinimum};
  Row* to = reinterpret_cast<Row*>(head + 1);
  for (size_t j = 0; j < n; ++j, ++to) {
    const char* row = w + j * stride + row_bytes(kType, k0);
    ask_for(row + kPanelRowsAhead * stride, row_bytes(kType, depth));
    for (size_t i = 0; i < depth; i += kLargestBlock, row += row_bytes(kType, kLargestBlock)) {
      constexpr size_t kPerBlock = size_t(G);
      Bytes bytes[kChunks];
      float* minimum = nullptr;
      if constexpr (Source::kHasMinimum) minimum = to->minimum + i / kBlock * kPerBlock;
      Source::read(row, min_of(kLargestBlock, depth - i), bytes, to->scale + i / kBlock * kPerBlock, minimum);
      for (size_t c = 0; c < 4; ++c) {
        if constexpr (Source::kOffset != 0) bytes[c] = _mm512_sub_epi8(bytes[c], all_bytes(Source::kOffset));
        _mm512_storeu_si512(to->q + i + 64 * c, bytes[c]);
      }
      store_starts<Source::kGroup>(bytes, to->start + i / kBlock * kPerBlock);
    }
  }
}

void int8_expand(DType type, const void* weights, size_t stride, bool, size_t n, size_t k0, size_t depth, void* panel) {
  const char* w = static_cast<const char*>(weights);
  auto* head = static_cast<PanelHead*>(panel);
  switch (type) {
    case DType::q8_0: return int8_expand_rows<DType::q8_0>(w, stride, n, k0, depth, head);
    case DType::q4_0: return int8_expand_rows<DType::q4_0>(w, stride, n, k0, depth, head);
#define VITRINE_ROWS(name, elements, bytes, number) \
  case DType::name: return int8_expand_rows<DType::name>(w, stride, n, k0, depth, head);
      VITRINE_DECODED_TYPES(VITRINE_ROWS)
#undef VITRINE_ROWS
    default: return;
  }
}

/// M outputs of 16 rows over `blocks` blocks. The block of x stays in eight registers while the outputs pass.
template <int G, bool kHasMinimum, int M>
void int8_tile(const PanelRow<G, kHasMinimum>* panel, const XBlock* x, Asking& next, size_t blocks, size_t rows, float* y,
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
      const PanelRow<G, kHasMinimum>* w = panel + m;
      for (int g = 0; g < G; ++g) {
        const size_t group = b * G + size_t(g);
        __m512i dot[kAbreast];
        for (int a = 0; a < kAbreast; ++a) dot[a] = _mm512_set1_epi32(w[a].start[group]);
        for (size_t i = size_t(g) * kFours; i < size_t(g + 1) * kFours; ++i)
          for (int a = 0; a < kAbreast; ++a) {
            int32_t four;
            memcpy(&four, w[a].q + b * kBlock + 4 * i, 4);
            dot[a] = _mm512_dpbusd_epi32(dot[a], value[i], _mm512_set1_epi32(four));
          }
        for (int a = 0; a < kAbreast; ++a) {
          const __m512 both = _mm512_mul_ps(_mm512_set1_ps(w[a].scale[group]), scale);
          sum[m + a] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[a]), both, sum[m + a]);
          if constexpr (kHasMinimum) sum[m + a] = _mm512_fnmadd_ps(_mm512_set1_ps(w[a].minimum[group]), x_sum[g], sum[m + a]);
        }
      }
    }
  }
  Vec by_output[M];
  for (int m = 0; m < M; ++m) by_output[m] = Vec{sum[m]};
  store_transposed<M>(by_output, min_of(rows, kLanes), y, y_stride, add);
}

/// Four outputs of 32 rows, in two tiles of x: the same sums. Each four bytes of weights, and each scale, are read once for both,
/// which is faster for groups of 16; second_rows of the second tile are stored.
template <int G, bool kHasMinimum>
void int8_two_tiles(const PanelRow<G, kHasMinimum>* panel, const XBlock* x, size_t to_second, Asking& next, size_t blocks,
                    size_t second_rows, float* y, size_t y_stride, bool add) {
  constexpr int M = 4;
  constexpr int kFours = int(kBlock) / 4 / G;  // of a group
  __m512 sum[2][M];
  for (int t = 0; t < 2; ++t)
    for (int m = 0; m < M; ++m) sum[t][m] = _mm512_setzero_ps();
  for (size_t b = 0; b < blocks; ++b) {
    next.line();
    const XBlock *first = x + b, *second = first + to_second;
    __m512i value[2][kBlock / 4];
    for (size_t i = 0; i < kBlock / 4; ++i)
      value[0][i] = _mm512_loadu_si512(first->q[i]), value[1][i] = _mm512_loadu_si512(second->q[i]);
    HWY_UNROLL(4)
    for (int m = 0; m < M; ++m) {
      const PanelRow<G, kHasMinimum>& w = panel[m];
      HWY_UNROLL(2)
      for (int g = 0; g < G; ++g) {
        const size_t group = b * G + size_t(g);
        __m512i dot0 = _mm512_set1_epi32(w.start[group]), dot1 = dot0;
        HWY_UNROLL(8)
        for (int i = g * kFours; i < (g + 1) * kFours; ++i) {
          int32_t four;
          memcpy(&four, w.q + b * kBlock + 4 * size_t(i), 4);
          const __m512i weights = _mm512_set1_epi32(four);
          dot0 = _mm512_dpbusd_epi32(dot0, value[0][i], weights);
          dot1 = _mm512_dpbusd_epi32(dot1, value[1][i], weights);
        }
        const __m512 scale = _mm512_set1_ps(w.scale[group]);
        sum[0][m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot0), _mm512_mul_ps(scale, _mm512_loadu_ps(first->scale)), sum[0][m]);
        sum[1][m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot1), _mm512_mul_ps(scale, _mm512_loadu_ps(second->scale)), sum[1][m]);
        if constexpr (kHasMinimum) {
          const __m512 minimum = _mm512_set1_ps(w.minimum[group]);
          const auto x_sum = [g](const XBlock* block) HWY_ATTR {
            const __m512 own = _mm512_loadu_ps(block->sum[g]);
            return G == 1 ? _mm512_add_ps(own, _mm512_loadu_ps(block->sum[1])) : own;
          };
          sum[0][m] = _mm512_fnmadd_ps(minimum, x_sum(first), sum[0][m]);
          sum[1][m] = _mm512_fnmadd_ps(minimum, x_sum(second), sum[1][m]);
        }
      }
    }
  }
  for (int t = 0; t < 2; ++t) {
    // Row 4 l + i of a tile is in quarter l of register i.
    const __m512 a = _mm512_unpacklo_ps(sum[t][0], sum[t][1]), c = _mm512_unpackhi_ps(sum[t][0], sum[t][1]);
    const __m512 d = _mm512_unpacklo_ps(sum[t][2], sum[t][3]), e = _mm512_unpackhi_ps(sum[t][2], sum[t][3]);
    const __m512 by_row[4] = {_mm512_shuffle_ps(a, d, 0x44), _mm512_shuffle_ps(a, d, 0xee), _mm512_shuffle_ps(c, e, 0x44),
                              _mm512_shuffle_ps(c, e, 0xee)};
    alignas(64) float square[4][16];
    for (int i = 0; i < 4; ++i) _mm512_store_ps(square[i], by_row[i]);
    for (size_t r = 0; r < (t == 0 ? 16 : second_rows); ++r) {
      float* out = y + (size_t(t) * 16 + r) * y_stride;
      const __m128 own = _mm_load_ps(square[r % 4] + r / 4 * 4);
      _mm_storeu_ps(out, add ? _mm_add_ps(_mm_loadu_ps(out), own) : own);
    }
  }
}

/// All outputs of a panel for 32 rows in two tiles, or for the last 16 in one: four at a time of two tiles, sixteen of one, the
/// rest of a matrix eight or one.
template <int G, bool kHasMinimum>
void int8_outputs(const void* rows_of_panel, const XBlock* x, size_t to_second, Asking& asking, size_t blocks, size_t rows,
                  size_t n, float* y, size_t y_stride, bool add) {
  const auto* panel = static_cast<const PanelRow<G, kHasMinimum>*>(rows_of_panel);
  size_t j = 0;
  for (; G == 2 && rows > 16 && j + 4 <= n; j += 4)
    int8_two_tiles<G, kHasMinimum>(panel + j, x, to_second, asking, blocks, rows - 16, y + j, y_stride, add);
  for (; j < n;) {
    const size_t outputs = n - j >= 16 ? 16 : n - j >= 8 ? 8 : 1;
    const auto tile = outputs == 16  ? int8_tile<G, kHasMinimum, 16>
                      : outputs == 8 ? int8_tile<G, kHasMinimum, 8>
                                     : int8_tile<G, kHasMinimum, 1>;
    tile(panel + j, x, asking, blocks, min_of(rows, 16), y + j, y_stride, add);
    if (rows > 16) tile(panel + j, x + to_second, asking, blocks, rows - 16, y + 16 * y_stride + j, y_stride, add);
    j += outputs;
  }
}

void int8_multiply(const void* panel, const float*, size_t, const void* packed, size_t, size_t row0, size_t n_rows, size_t k,
                   size_t k0, size_t depth, bool, size_t n, float* y, size_t y_stride, bool add, const ReadNext& next) {
  const auto* head = static_cast<const PanelHead*>(panel);
  const size_t blocks = depth / kBlock, to_second = k / kBlock;
  Asking asking(next, (n_rows + 15) / 16 * ((n + 15) / 16) * blocks);
  for (size_t row = row0; row < row0 + n_rows; row += 32) {
    const size_t rows = min_of(32, row0 + n_rows - row);
    const XBlock* x = static_cast<const XBlock*>(packed) + row / 16 * to_second + k0 / kBlock;
    const auto outputs = head->groups == 1   ? head->has_minimum ? int8_outputs<1, true> : int8_outputs<1, false>
                           : head->has_minimum ? int8_outputs<2, true>
                                             : int8_outputs<2, false>;
    outputs(head + 1, x, to_second, asking, blocks, rows, n, y + row * y_stride, y_stride, add);
  }
}

constexpr PanelKernels kPanelInt8 = {.outputs = kInt8Outputs,
                                     .depth = kInt8Depth,
                                     .panel_bytes = sizeof(PanelHead) + kInt8Outputs * sizeof(PanelRow<2, true>),
                                     .x_bytes = int8_x_bytes,
                                     .pack_x = int8_pack_x,
                                     .expand = int8_expand,
                                     .multiply = int8_multiply};

#endif

}  // namespace
}  // namespace vitrine
