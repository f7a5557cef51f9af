#pragma once
// Products of many rows with block weights, both sides int8, where bytes multiply in pairs that add up in 16 bits. Per group of
// 32 inputs, or of 16 where the weights' scales are for so many, the products are summed exactly in integers and enter an f32 sum
// as scale(w) * scale(x) * integer, group after group; what minima take away follows. Lanes are rows of x: a row's bits cannot
// depend on its neighbors. The byte product wants w unsigned: an offset makes it so, and offset * x is taken out with the rows'
// sums. Types that use all of a byte are multiplied as words instead, whose products need no sign taken apart.
#include "kernels/simd/panel.h"
#include "kernels/simd/quantize.h"
#include "kernels/simd/unpacked.h"

namespace vitrine {
namespace {

#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3

constexpr size_t kPairOutputs = 64, kPairDepth = 1024;  // a tile of x and eight outputs fit the first cache
constexpr size_t kPairBlocks = kPairDepth / kBlock;
constexpr size_t kPairRows = 8;

/// Weights of one output in a panel, as bytes or as words; of each four words the second and the third are exchanged. Written 256
/// at a time, the last of which may be no weights.
template <class T>
struct PairRow {
  float scale[kPairBlocks * 2];
  float minimum[kPairBlocks * 2];
  T q[kPairDepth];
  char apart[64];  // keeps rows off one another's cache sets
};
template <DType kType>
using PairRowOf = PairRow<std::conditional_t<Unpacked256<kType>::kSigned, int16_t, uint8_t>>;
/// 32 inputs of eight rows: four inputs of each row side by side, the rows' scales, and their sums of 16 inputs, as they are and
/// as integers.
struct PairBlock {
  int8_t q[kBlock / 4][kPairRows][4];
  float scale[kPairRows];
  float sum[2][kPairRows];
  int32_t total[2][kPairRows];
};

size_t pair_x_bytes(size_t rows, size_t k) { return (rows + 31) / 32 * 4 * (k / kBlock) * sizeof(PairBlock); }

void pair_pack_x(const float* x, size_t x_stride, size_t row0, size_t n, size_t, size_t k, void* packed) {
  const size_t blocks = k / kBlock;
  constexpr size_t kParts = ActivationBlock::kElements / kBlock;
  ActivationBlock block;
  for (size_t row = row0; row < row0 + (n + kPairRows - 1) / kPairRows * kPairRows; ++row) {
    PairBlock* tile = static_cast<PairBlock*>(packed) + row / kPairRows * blocks;
    const size_t r = row % kPairRows;
    for (size_t b = 0; b < blocks; ++b) {
      const size_t part = b % kParts;
      if (part == 0) {
        memset(&block, 0, sizeof block);  // rows that there are not
        if (row < row0 + n) quantize_int8(x + row * x_stride + b * kBlock, min_of(blocks - b, kParts) * kBlock, &block);
      }
      PairBlock& to = tile[b];
      for (size_t i = 0; i < kBlock / 4; ++i) memcpy(to.q[i][r], block.q + part * kBlock + 4 * i, 4);
      to.scale[r] = block.scale[part];
      for (size_t half = 0; half < 2; ++half) {
        to.sum[half][r] = block.sum[2 * part + half];
        int32_t total = 0;
        for (size_t i = 0; i < 16; ++i) total += block.q[part * kBlock + 16 * half + i];
        to.total[half][r] = total;
      }
    }
  }
}

/// Bits of the unsigned weights of a type.
constexpr int bits_of(DType type) {
  return type == DType::q6_k ? 6 : type == DType::q5_k || type == DType::q5_0 || type == DType::q5_1 ? 5 : 4;
}

HWY_INLINE void store_weights(Bytes bytes, uint8_t* q) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes); }
HWY_INLINE void store_weights(Bytes bytes, int16_t* q) {
  const auto store = [](__m128i half, int16_t* to) HWY_ATTR {
    constexpr int kExchanged = 0b11'01'10'00;
    const __m256i words = _mm256_shufflelo_epi16(_mm256_cvtepi8_epi16(half), kExchanged);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_shufflehi_epi16(words, kExchanged));
  };
  store(_mm256_castsi256_si128(bytes), q);
  store(_mm256_extracti128_si256(bytes, 1), q + 16);
}

template <DType kType>
void pair_expand(const char* w, size_t stride, size_t n, size_t k0, size_t depth, void* rows) {
  using Source = Unpacked256<kType>;
  auto* to = static_cast<PairRowOf<kType>*>(rows);
  for (size_t j = 0; j < n; ++j, ++to) {
    const char* row = w + j * stride + row_bytes(kType, k0);
    for (size_t i = 0; i < depth; i += kLargestBlock, row += row_bytes(kType, kLargestBlock)) {
      const size_t group = i / size_t(Source::kGroup);
      Bytes bytes[kChunks];
      Source::read(row, min_of(kLargestBlock, depth - i), bytes, to->scale + group, to->minimum + group);
      for (size_t c = 0; c < kChunks; ++c) store_weights(bytes[c], to->q + i + 32 * c);
    }
  }
}

/// M outputs of eight rows over `blocks` blocks.
template <DType kType, int M>
void pair_tile(const PairRow<uint8_t>* panel, const PairBlock* x, Asking& next, size_t blocks, size_t rows, float* y,
               size_t y_stride, bool add) {
  using Source = Unpacked256<kType>;
  constexpr int G = int(kBlock) / Source::kGroup, kFours = int(kBlock) / 4 / G;
  constexpr int kBits = bits_of(kType), kSums = kBits == 4 ? 8 : kBits == 5 ? 4 : 2;  // 2 · 127 · (2^bits - 1) each
  constexpr int kAbreast = M % 4 == 0 ? 4 : 1;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256 sum[M];
  for (int m = 0; m < M; ++m) sum[m] = _mm256_setzero_ps();
  for (size_t b = 0; b < blocks; ++b) {
    next.line();
    const PairBlock& block = x[b];
    const __m256 x_scale = _mm256_loadu_ps(block.scale);
    for (int g = 0; g < G; ++g) {
      const size_t group = b * G + size_t(g);
      const auto of_group = [&](const auto& halves, auto add_up)
                                HWY_ATTR { return G == 2 ? halves(g) : add_up(halves(0), halves(1)); };
      __m256i start = _mm256_setzero_si256();
      if constexpr (Source::kOffset != 0) {
        const __m256i total =
            of_group([&](int half) HWY_ATTR { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block.total[half])); },
                     [](__m256i p, __m256i q) HWY_ATTR { return _mm256_add_epi32(p, q); });
        start = _mm256_sub_epi32(start, _mm256_mullo_epi32(total, _mm256_set1_epi32(Source::kOffset)));
      }
      __m256 x_sum = _mm256_setzero_ps();
      if constexpr (Source::kHasMinimum)
        x_sum = of_group([&](int half) HWY_ATTR { return _mm256_loadu_ps(block.sum[half]); },
                         [](__m256 p, __m256 q) HWY_ATTR { return _mm256_add_ps(p, q); });
      HWY_UNROLL(4)
      for (int m = 0; m < M; m += kAbreast) {
        const PairRow<uint8_t>* w = panel + m;
        __m256i dot[kAbreast], pairs[kAbreast];
        for (int a = 0; a < kAbreast; ++a) dot[a] = start;
        HWY_UNROLL(8)
        for (int i = 0; i < kFours; ++i) {
          const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block.q[g * kFours + i]));
          for (int a = 0; a < kAbreast; ++a) {
            int32_t four;
            memcpy(&four, w[a].q + b * kBlock + 4 * size_t(g * kFours + i), 4);
            const __m256i weights = _mm256_set1_epi32(four);
            const __m256i products = _mm256_maddubs_epi16(weights, value);
            pairs[a] = i % kSums == 0 ? products : _mm256_add_epi16(pairs[a], products);
            asm("" : "+x"(pairs[a]));  // one sum after the other: a tree of them would not fit the registers
            if (i % kSums == kSums - 1 || i == kFours - 1) dot[a] = _mm256_add_epi32(dot[a], _mm256_madd_epi16(pairs[a], ones));
          }
        }
        for (int a = 0; a < kAbreast; ++a) {
          const __m256 both = _mm256_mul_ps(_mm256_set1_ps(w[a].scale[group]), x_scale);
          sum[m + a] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[a]), both, sum[m + a]);
          if constexpr (Source::kHasMinimum)
            sum[m + a] = _mm256_fnmadd_ps(_mm256_set1_ps(w[a].minimum[group]), x_sum, sum[m + a]);
        }
      }
    }
  }
  Vec by_output[M];
  for (int m = 0; m < M; ++m) by_output[m] = Vec{sum[m]};
  store_transposed<M>(by_output, min_of(rows, kLanes), y, y_stride, add);
}

/// M outputs of T times eight rows, the tiles of x `to_second` blocks apart, with weights as words. A word of x has one of its
/// bytes on top: the sums of products are 256 times what they are of bytes, below 2^28, and shifted back.
template <DType kType, int T, int M>
void word_tile(const PairRow<int16_t>* panel, const PairBlock* x, size_t to_second, Asking& next, size_t blocks, size_t rows,
               float* y, size_t y_stride, bool add) {
  using Source = Unpacked256<kType>;
  constexpr int G = int(kBlock) / Source::kGroup, kFours = int(kBlock) / 4 / G;
  __m256 sum[T][M];
  for (int t = 0; t < T; ++t)
    for (int m = 0; m < M; ++m) sum[t][m] = _mm256_setzero_ps();
  for (size_t b = 0; b < blocks; ++b) {
    next.line();
    for (int g = 0; g < G; ++g) {
      const size_t group = b * G + size_t(g);
      __m256i dot[T][M];
      for (int t = 0; t < T; ++t)
        for (int m = 0; m < M; ++m) dot[t][m] = _mm256_setzero_si256();
      HWY_UNROLL(8)
      for (int i = g * kFours; i < (g + 1) * kFours; ++i) {
        HWY_UNROLL(2)
        for (int odd = 0; odd < 2; ++odd) {
          __m256i value[T];
          for (int t = 0; t < T; ++t) {
            const __m256i fours = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[size_t(t) * to_second + b].q[i]));
            value[t] = odd == 0 ? _mm256_slli_epi16(fours, 8) : _mm256_and_si256(fours, _mm256_set1_epi16(-256));
          }
          HWY_UNROLL(4)
          for (int m = 0; m < M; ++m) {
            int32_t two;
            memcpy(&two, panel[m].q + b * kBlock + 4 * size_t(i) + 2 * size_t(odd), 4);
            const __m256i weights = _mm256_set1_epi32(two);
            for (int t = 0; t < T; ++t) {
              dot[t][m] = _mm256_add_epi32(dot[t][m], _mm256_madd_epi16(weights, value[t]));
              asm("" : "+x"(dot[t][m]));  // one sum after the other: a tree of them would not fit the registers
            }
          }
        }
      }
      for (int t = 0; t < T; ++t) {
        const PairBlock& block = x[size_t(t) * to_second + b];
        const __m256 x_scale = _mm256_loadu_ps(block.scale);
        __m256 x_sum = _mm256_setzero_ps();
        if constexpr (Source::kHasMinimum)
          x_sum = G == 2 ? _mm256_loadu_ps(block.sum[g])
                         : _mm256_add_ps(_mm256_loadu_ps(block.sum[0]), _mm256_loadu_ps(block.sum[1]));
        for (int m = 0; m < M; ++m) {
          const __m256 both = _mm256_mul_ps(_mm256_set1_ps(panel[m].scale[group]), x_scale);
          sum[t][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(dot[t][m], 8)), both, sum[t][m]);
          if constexpr (Source::kHasMinimum)
            sum[t][m] = _mm256_fnmadd_ps(_mm256_set1_ps(panel[m].minimum[group]), x_sum, sum[t][m]);
        }
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    Vec by_output[M];
    for (int m = 0; m < M; ++m) by_output[m] = Vec{sum[t][m]};
    const size_t first = size_t(t) * kPairRows;
    store_transposed<M>(by_output, min_of(rows - first, kLanes), y + first * y_stride, y_stride, add);
  }
}

/// n outputs of up to sixteen rows.
template <DType kType>
void pair_outputs(const void* rows_of_panel, const PairBlock* x, size_t to_second, Asking& asking, size_t blocks, size_t rows,
                  size_t n, float* y, size_t y_stride, bool add) {
  const auto* panel = static_cast<const PairRowOf<kType>*>(rows_of_panel);
  size_t j = 0;
  if constexpr (Unpacked256<kType>::kSigned) {
    for (; rows > kPairRows && j + 4 <= n; j += 4)
      word_tile<kType, 2, 4>(panel + j, x, to_second, asking, blocks, rows, y + j, y_stride, add);
    for (; rows > kPairRows && j < n; ++j)
      word_tile<kType, 2, 1>(panel + j, x, to_second, asking, blocks, rows, y + j, y_stride, add);
    for (; j + 4 <= n; j += 4) word_tile<kType, 1, 4>(panel + j, x, 0, asking, blocks, rows, y + j, y_stride, add);
    for (; j < n; ++j) word_tile<kType, 1, 1>(panel + j, x, 0, asking, blocks, rows, y + j, y_stride, add);
  } else {
    for (size_t first = 0; first < rows; first += kPairRows, x += to_second, y += kPairRows * y_stride) {
      const size_t here = min_of(kPairRows, rows - first);
      for (j = 0; j + 8 <= n; j += 8) pair_tile<kType, 8>(panel + j, x, asking, blocks, here, y + j, y_stride, add);
      for (; j < n; ++j) pair_tile<kType, 1>(panel + j, x, asking, blocks, here, y + j, y_stride, add);
    }
  }
}

/// A panel: what its type is, then its rows.
struct alignas(64) PairHead {
  DType type;
};

#define VITRINE_PAIR_TYPES(CASE) \
  CASE(q8_0, 0, 0, 0)            \
  CASE(q4_0, 0, 0, 0)            \
  VITRINE_DECODED_TYPES(CASE)

void pair_expand(DType type, const void* weights, size_t stride, bool, size_t n, size_t k0, size_t depth, void* panel) {
  const char* w = static_cast<const char*>(weights);
  auto* head = static_cast<PairHead*>(panel);
  auto* rows = head + 1;
  head->type = type;
  switch (type) {
#define VITRINE_ROWS(name, elements, bytes, number) \
  case DType::name: return pair_expand<DType::name>(w, stride, n, k0, depth, rows);
    VITRINE_PAIR_TYPES(VITRINE_ROWS)
#undef VITRINE_ROWS
    default: return;
  }
}

void pair_multiply(const void* panel, const float*, size_t, const void* packed, size_t, size_t row0, size_t n_rows, size_t k,
                   size_t k0, size_t depth, bool, size_t n, float* y, size_t y_stride, bool add, const ReadNext& next) {
  Asking asking(next);
  const auto* head = static_cast<const PairHead*>(panel);
  decltype(&pair_outputs<DType::q8_0>) outputs = nullptr;
  switch (head->type) {
#define VITRINE_ROWS(name, elements, bytes, number) \
  case DType::name: outputs = pair_outputs<DType::name>; break;
    VITRINE_PAIR_TYPES(VITRINE_ROWS)
#undef VITRINE_ROWS
    default: return;
  }
  const size_t to_second = k / kBlock;
  for (size_t row = row0; row < row0 + n_rows; row += 2 * kPairRows) {
    const PairBlock* x = static_cast<const PairBlock*>(packed) + row / kPairRows * to_second + k0 / kBlock;
    outputs(head + 1, x, to_second, asking, depth / kBlock, min_of(2 * kPairRows, row0 + n_rows - row), n, y + row * y_stride,
            y_stride, add);
  }
}

constexpr PanelKernels kPanelInt8 = {.outputs = kPairOutputs,
                                     .depth = kPairDepth,
                                     .panel_bytes = sizeof(PairHead) + kPairOutputs * sizeof(PairRow<int16_t>),
                                     .x_bytes = pair_x_bytes,
                                     .pack_x = pair_pack_x,
                                     .expand = pair_expand,
                                     .multiply = pair_multiply};

#endif

}  // namespace
}  // namespace vitrine
