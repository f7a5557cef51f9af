#pragma once
// Products of many rows with block weights, both sides int8. Per block of 32 inputs, or of 16 where the weights' scales are for
// so many, the products are summed exactly in integers and enter an f32 sum as scale(w) * scale(x) * integer, block after block;
// what minima take away follows. Lanes are rows of x: a row's bits cannot depend on its neighbors. The byte product wants w
// unsigned: an offset makes it so, and offset * x is where the integer starts from, below zero.
#include <bit>

#include "kernels/simd/panel.h"
#include "kernels/simd/quantize.h"
#include "kernels/simd/unpacked.h"

namespace vitrine {
namespace {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

constexpr size_t kInt8Outputs = 64, kInt8Depth = 1024;  // a tile of x and one of weights fit the first cache
constexpr size_t kInt8Blocks = kInt8Depth / kBlock;

/// Weights of one output in a panel as bytes, in blocks of G groups that have a scale each. Written 256 weights at a time, the
/// last of which may be no weights.
template <int G, bool kHasMinimum>
struct PanelRow {
  float scale[kInt8Blocks * G];
  uint8_t q[kInt8Depth];
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
  int shift;  // log2 of what was added to each weight, if its type has no minimum
};
/// 32 inputs of 16 rows: four inputs of each row side by side, the rows' scales, and their sums of 16 inputs, as they are
/// (ActivationBlock) and as integers, these below zero.
struct XBlock {
  int8_t q[kBlock / 4][16][4];
  float scale[16];
  float sum[2][16];
  int32_t less[2][16];
};
size_t int8_x_bytes(size_t rows, size_t k) { return (rows + 31) / 32 * 2 * (k / kBlock) * sizeof(XBlock); }

HWY_INLINE int16_t total_of_16(const int8_t* q) {
  const __m128i ones = _mm_set1_epi8(1), pairs = _mm_maddubs_epi16(ones, _mm_loadu_si128(reinterpret_cast<const __m128i*>(q)));
  const __m128i fours = _mm_add_epi16(pairs, _mm_unpackhi_epi64(pairs, pairs));
  const __m128i two = _mm_add_epi16(fours, _mm_shufflelo_epi16(fours, 0x4e));
  return int16_t(_mm_extract_epi16(two, 0) + _mm_extract_epi16(two, 1));
}

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
        const int8_t* q = block.q + part * kBlock;
        for (size_t i = 0; i < kBlock / 4; ++i) memcpy(to.q[i][r], q + 4 * i, 4);
        to.scale[r] = block.scale[part];
        for (size_t half = 0; half < 2; ++half) {
          to.sum[half][r] = block.sum[2 * part + half];
          to.less[half][r] = -total_of_16(q + 16 * half);
        }
      }
  }
}

/// What is added to the weights of a type: 128 to signed ones. Those with a minimum are none.
template <class Source>
constexpr int kPanelOffset = Source::kHasMinimum ? 0
                             : Source::kSigned   ? 128
                                                 : Source::kOffset;

template <DType kType>
void int8_expand_rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, PanelHead* head) {
  using Source = Unpacked256<kType>;
  constexpr int G = int(kBlock) / Source::kGroup;
  using Row = PanelRow<G, Source::kHasMinimum>;
  *head = {G, Source::kHasMinimum, std::countr_zero(unsigned(kPanelOffset<Source>))};
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
        if constexpr (Source::kSigned && !Source::kHasMinimum) bytes[c] = _mm512_xor_si512(bytes[c], all_bytes(-128));
        _mm512_storeu_si512(to->q + i + 64 * c, bytes[c]);
      }
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

/// Where the integers of a block's group start from: -offset * x.
template <int G, bool kHasMinimum>
HWY_INLINE __m512i start_of(const XBlock& x, int group, int shift) {
  if constexpr (kHasMinimum) return _mm512_setzero_si512();
  const __m512i own = _mm512_loadu_si512(x.less[group]);
  return _mm512_sll_epi32(G == 2 ? own : _mm512_add_epi32(own, _mm512_loadu_si512(x.less[1])), _mm_cvtsi32_si128(shift));
}

/// M outputs of 16 rows over `blocks` blocks. The block of x stays in eight registers while the outputs pass.
template <int G, bool kHasMinimum, int M>
void int8_tile(const PanelRow<G, kHasMinimum>* panel, int shift, const XBlock* x, Asking& next, size_t blocks, size_t rows,
               float* y, size_t y_stride, bool add) {
  Vec sum[M];
  HWY_UNROLL(16)  // else memory is cleared for them
  for (int m = 0; m < M; ++m) sum[m] = hn::Zero(Tag());
  for (size_t b = 0; b < blocks; ++b) {
    next.line();
    __m512i value[kBlock / 4];
    for (size_t i = 0; i < kBlock / 4; ++i) value[i] = _mm512_loadu_si512(x[b].q[i]);
    const __m512 scale = _mm512_loadu_ps(x[b].scale);
    __m512i start[G];
    for (int g = 0; g < G; ++g) start[g] = start_of<G, kHasMinimum>(x[b], g, shift);
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
        for (int a = 0; a < kAbreast; ++a) dot[a] = start[g];
        for (size_t i = size_t(g) * kFours; i < size_t(g + 1) * kFours; ++i)
          for (int a = 0; a < kAbreast; ++a) {
            int32_t four;
            memcpy(&four, w[a].q + b * kBlock + 4 * i, 4);
            dot[a] = _mm512_dpbusd_epi32(dot[a], _mm512_set1_epi32(four), value[i]);
          }
        for (int a = 0; a < kAbreast; ++a) {
          const __m512 both = _mm512_mul_ps(_mm512_set1_ps(w[a].scale[group]), scale);
          __m512& own = sum[m + a].raw;
          own = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[a]), both, own);
          if constexpr (kHasMinimum) own = _mm512_fnmadd_ps(_mm512_set1_ps(w[a].minimum[group]), x_sum[g], own);
        }
      }
    }
  }
  store_transposed<M>(sum, min_of(rows, kLanes), y, y_stride, add);
}

/// All outputs of a panel for 32 rows in two tiles, or for the last 16 in one: four at a time of two tiles, sixteen of one, the
/// rest of a matrix eight or one.
template <int G, bool kHasMinimum>
void int8_outputs(const PanelHead* head, const XBlock* x, size_t to_second, Asking& asking, size_t blocks, size_t rows, size_t n,
                  float* y, size_t y_stride, bool add) {
  const auto* panel = reinterpret_cast<const PanelRow<G, kHasMinimum>*>(head + 1);
  size_t j = 0;
  for (; j < n;) {
    const size_t outputs = n - j >= 16 ? 16 : n - j >= 8 ? 8 : 1;
    const auto tile = outputs == 16  ? int8_tile<G, kHasMinimum, 16>
                      : outputs == 8 ? int8_tile<G, kHasMinimum, 8>
                                     : int8_tile<G, kHasMinimum, 1>;
    tile(panel + j, head->shift, x, asking, blocks, min_of(rows, 16), y + j, y_stride, add);
    if (rows > 16) tile(panel + j, head->shift, x + to_second, asking, blocks, rows - 16, y + 16 * y_stride + j, y_stride, add);
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
    outputs(head, x, to_second, asking, blocks, rows, n, y + row * y_stride, y_stride, add);
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
