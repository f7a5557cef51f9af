#pragma once
// Products of many rows with block weights on Arm, both sides int8. Per group of 32 inputs, or of 16 where the weights' scales
// are for so many, the products are summed exactly in integers and enter an f32 sum as scale(w) * scale(x) * integer, group after
// group; what minima take away follows. A tile is four outputs of eight rows, whose integers come from dot products of four bytes
// (FEAT_DotProd) or from products of 2 x 8 with 8 x 2 bytes (FEAT_I8MM): the same bits. Lanes of the f32 sums are rows of x: a
// row's bits cannot depend on its neighbors.
#include "kernels/simd/panel.h"
#include "kernels/simd/quantize.h"
#include "kernels/simd/unpacked.h"

namespace vitrine {
namespace {

#ifdef __ARM_FEATURE_DOTPROD

constexpr size_t kInt8Outputs = 64, kInt8Depth = 1024;  // a tile of x and four outputs fit the first cache
constexpr size_t kInt8Blocks = kInt8Depth / kBlock;
constexpr size_t kFour = 4, kInt8Rows = 8;  // outputs and rows of a tile

#ifdef __ARM_FEATURE_MATMUL_INT8
constexpr size_t kRunX = 8, kRunW = 8;  // neighboring inputs of one row of x, or of one output, in a vector
#else
constexpr size_t kRunX = 4, kRunW = 16;
#endif

/// 32 inputs of four outputs, in runs: the first kRunW inputs of each output, then the next ones. G groups have a scale each.
template <int G, bool kHasMinimum>
struct PanelBlock {
  int8_t q[kBlock / kRunW][kFour][kRunW];
  float scale[G][kFour];
};
template <int G>
struct PanelBlock<G, true> : PanelBlock<G, false> {
  float minimum[G][kFour];
};
/// What a panel's blocks are; they follow it: kInt8Blocks for each four outputs.
struct alignas(64) PanelHead {
  int groups;
  bool has_minimum;
};
/// 32 inputs of eight rows, in runs, the rows' scales, and their sums of 16 inputs (ActivationBlock).
struct XBlock {
  int8_t q[kBlock / kRunX][kInt8Rows][kRunX];
  float scale[kInt8Rows];
  float sum[2][kInt8Rows];
};

size_t int8_x_bytes(size_t rows, size_t k) { return (rows + kInt8Rows - 1) / kInt8Rows * (k / kBlock) * sizeof(XBlock); }

void int8_pack_x(const float* x, size_t x_stride, size_t row0, size_t n, size_t, size_t k, void* packed) {
  const size_t blocks = k / kBlock;
  constexpr size_t kParts = ActivationBlock::kElements / kBlock;
  ActivationBlock block;
  for (size_t row = row0; row < row0 + (n + kInt8Rows - 1) / kInt8Rows * kInt8Rows; ++row) {
    XBlock* tile = static_cast<XBlock*>(packed) + row / kInt8Rows * blocks;
    const size_t r = row % kInt8Rows;
    for (size_t b = 0; b < blocks; ++b) {
      const size_t part = b % kParts;
      if (part == 0) {
        memset(&block, 0, sizeof block);  // rows that there are not
        if (row < row0 + n) quantize_int8(x + row * x_stride + b * kBlock, min_of(blocks - b, kParts) * kBlock, &block);
      }
      XBlock& to = tile[b];
      for (size_t i = 0; i < kBlock / kRunX; ++i) memcpy(to.q[i][r], block.q + part * kBlock + i * kRunX, kRunX);
      to.scale[r] = block.scale[part];
      for (size_t half = 0; half < 2; ++half) to.sum[half][r] = block.sum[2 * part + half];
    }
  }
}

template <DType kType>
void int8_expand_rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, PanelHead* head) {
  using Source = Unpacked256<kType>;
  constexpr int G = int(kBlock) / Source::kGroup;
  using Block = PanelBlock<G, Source::kHasMinimum>;
  *head = {G, Source::kHasMinimum};
  auto* blocks = reinterpret_cast<Block*>(head + 1);
  if (n % kFour != 0) memset(blocks + n / kFour * kInt8Blocks, 0, kInt8Blocks * sizeof(Block));  // outputs that there are not
  for (size_t j = 0; j < n; ++j) {
    const char* row = w + j * stride + row_bytes(kType, k0);
    Block* to = blocks + j / kFour * kInt8Blocks;
    for (size_t i = 0; i < depth; i += kLargestBlock, row += row_bytes(kType, kLargestBlock)) {
      const size_t here = min_of(kLargestBlock, depth - i);
      Bytes bytes[kChunks];
      float scale[kLargestBlock / kBlock * G], minimum[kLargestBlock / kBlock * G];
      Source::read(row, here, bytes, scale, minimum);
      for (size_t part = 0; part < here / kBlock; ++part, ++to) {
        if constexpr (Source::kOffset != 0) bytes[part] = less(bytes[part], all_bytes(Source::kOffset));
        int8_t flat[kBlock];
        vst1q_s8(flat, bytes[part].low);
        vst1q_s8(flat + 16, bytes[part].high);
        for (size_t run = 0; run < kBlock / kRunW; ++run) memcpy(to->q[run][j % kFour], flat + run * kRunW, kRunW);
        for (int g = 0; g < G; ++g) {
          to->scale[g][j % kFour] = scale[part * G + size_t(g)];
          if constexpr (Source::kHasMinimum) to->minimum[g][j % kFour] = minimum[part * G + size_t(g)];
        }
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

/// dot[m][v]: the products of group g with output m, of rows 4 v to 4 v + 3, summed.
#ifdef __ARM_FEATURE_MATMUL_INT8
template <int G>
HWY_INLINE void group_products(const int8_t (&w)[kBlock / kRunW][kFour][kRunW],
                               const int8_t (&x)[kBlock / kRunX][kInt8Rows][kRunX], int g, int32x4_t (&dot)[kFour][2]) {
  constexpr int kRuns = int(kBlock / kRunW) / G;
  int32x4_t square[2][4];  // of two outputs and two rows
  for (auto& line : square)
    for (int32x4_t& s : line) s = vdupq_n_s32(0);
  for (int run = g * kRuns; run < (g + 1) * kRuns; ++run)
    for (int pair = 0; pair < 4; ++pair) {
      const int8x16_t rows = vld1q_s8(x[run][2 * pair]);
      for (int out = 0; out < 2; ++out) square[out][pair] = vmmlaq_s32(square[out][pair], vld1q_s8(w[run][2 * out]), rows);
    }
  for (int out = 0; out < 2; ++out)
    for (int v = 0; v < 2; ++v) {
      const int64x2_t a = vreinterpretq_s64_s32(square[out][2 * v]), b = vreinterpretq_s64_s32(square[out][2 * v + 1]);
      dot[2 * out][v] = vreinterpretq_s32_s64(vtrn1q_s64(a, b));
      dot[2 * out + 1][v] = vreinterpretq_s32_s64(vtrn2q_s64(a, b));
    }
}
#else
/// The products of run kI of x and those that follow in 16 inputs.
template <int kI = 0>
HWY_INLINE void run_products(const int8x16_t (&w)[kFour], const int8_t (*x)[kInt8Rows][kRunX], int32x4_t (&dot)[kFour][2]) {
  for (size_t v = 0; v < 2; ++v) {
    const int8x16_t rows = vld1q_s8(x[kI][4 * v]);
    for (size_t m = 0; m < kFour; ++m) dot[m][v] = vdotq_laneq_s32(dot[m][v], rows, w[m], kI);
  }
  if constexpr (kI < 3) run_products<kI + 1>(w, x, dot);
}
template <int G>
HWY_INLINE void group_products(const int8_t (&w)[kBlock / kRunW][kFour][kRunW],
                               const int8_t (&x)[kBlock / kRunX][kInt8Rows][kRunX], int g, int32x4_t (&dot)[kFour][2]) {
  constexpr int kRuns = int(kBlock / kRunW) / G;
  for (size_t m = 0; m < kFour; ++m) dot[m][0] = dot[m][1] = vdupq_n_s32(0);
  for (int run = g * kRuns; run < (g + 1) * kRuns; ++run) {
    int8x16_t outputs[kFour];
    for (size_t m = 0; m < kFour; ++m) outputs[m] = vld1q_s8(w[run][m]);
    run_products(outputs, x + 4 * run, dot);
  }
}
#endif

/// sum[m][v] -= value[v] * factors[m] for output M and those that follow.
template <int M = 0>
HWY_INLINE void take_products(const float32x4_t (&value)[2], float32x4_t factors, float32x4_t (&sum)[kFour][2]) {
  for (int v = 0; v < 2; ++v) sum[M][v] = vfmsq_laneq_f32(sum[M][v], value[v], factors, M);
  if constexpr (M + 1 < int(kFour)) take_products<M + 1>(value, factors, sum);
}
/// sum[m][v] += dot[m][v] * (factors[m] * scale[v]) for output M and those that follow.
template <int M = 0>
HWY_INLINE void add_integers(const int32x4_t (&dot)[kFour][2], float32x4_t factors, const float32x4_t (&scale)[2],
                             float32x4_t (&sum)[kFour][2]) {
  for (int v = 0; v < 2; ++v) sum[M][v] = vfmaq_f32(sum[M][v], vcvtq_f32_s32(dot[M][v]), vmulq_laneq_f32(scale[v], factors, M));
  if constexpr (M + 1 < int(kFour)) add_integers<M + 1>(dot, factors, scale, sum);
}

/// Four outputs of eight rows over `blocks` blocks; `outputs` of them and `rows` of these are stored.
template <int G, bool kHasMinimum>
void int8_tile(const PanelBlock<G, kHasMinimum>* w, const XBlock* x, Asking& next, size_t blocks, size_t rows, size_t outputs,
               float* y, size_t y_stride, bool add) {
  float32x4_t sum[kFour][2];
  for (auto& line : sum) line[0] = line[1] = vdupq_n_f32(0);
  for (size_t b = 0; b < blocks; ++b) {
    next.line();
    const float32x4_t scale[2] = {vld1q_f32(x[b].scale), vld1q_f32(x[b].scale + 4)};
    for (int g = 0; g < G; ++g) {
      int32x4_t dot[kFour][2];
      group_products<G>(w[b].q, x[b].q, g, dot);
      add_integers(dot, vld1q_f32(w[b].scale[g]), scale, sum);
      if constexpr (kHasMinimum) {
        float32x4_t of_x[2] = {vld1q_f32(x[b].sum[g]), vld1q_f32(x[b].sum[g] + 4)};
        if constexpr (G == 1)
          for (int v = 0; v < 2; ++v) of_x[v] = vaddq_f32(of_x[v], vld1q_f32(x[b].sum[1] + 4 * v));
        take_products(of_x, vld1q_f32(w[b].minimum[g]), sum);
      }
    }
  }
  for (size_t v = 0; v < 2; ++v) {
    Vec square[kLanes];
    for (size_t m = 0; m < kFour; ++m) square[m] = Vec{sum[m][v]};
    transpose(square);
    for (size_t r = 4 * v; r < min_of(rows, 4 * v + 4); ++r) {
      float* out = y + r * y_stride;
      const Vec own = square[r % 4];
      store_up_to(add ? hn::Add(load_up_to(out, outputs), own) : own, out, outputs);
    }
  }
}

template <int G, bool kHasMinimum>
void int8_outputs(const void* panel, const XBlock* x, Asking& asking, size_t blocks, size_t rows, size_t n, float* y,
                  size_t y_stride, bool add) {
  const auto* w = static_cast<const PanelBlock<G, kHasMinimum>*>(panel);
  for (size_t j = 0; j < n; j += kFour, w += kInt8Blocks)
    int8_tile<G, kHasMinimum>(w, x, asking, blocks, rows, min_of(kFour, n - j), y + j, y_stride, add);
}

void int8_multiply(const void* panel, const float*, size_t, const void* packed, size_t, size_t row0, size_t n_rows, size_t k,
                   size_t k0, size_t depth, bool, size_t n, float* y, size_t y_stride, bool add, const ReadNext& next) {
  Asking asking(next);
  const auto* head = static_cast<const PanelHead*>(panel);
  const auto outputs = head->groups == 1   ? head->has_minimum ? int8_outputs<1, true> : int8_outputs<1, false>
                         : head->has_minimum ? int8_outputs<2, true>
                                           : int8_outputs<2, false>;
  for (size_t row = row0; row < row0 + n_rows; row += kInt8Rows) {
    const XBlock* x = static_cast<const XBlock*>(packed) + row / kInt8Rows * (k / kBlock) + k0 / kBlock;
    outputs(head + 1, x, asking, depth / kBlock, min_of(kInt8Rows, row0 + n_rows - row), n, y + row * y_stride, y_stride, add);
  }
}

constexpr PanelKernels kPanelInt8 = {
    .outputs = kInt8Outputs,
    .depth = kInt8Depth,
    .panel_bytes = sizeof(PanelHead) + kInt8Outputs / kFour * kInt8Blocks * sizeof(PanelBlock<2, true>),
    .x_bytes = int8_x_bytes,
    .pack_x = int8_pack_x,
    .expand = int8_expand,
    .multiply = int8_multiply};

#else

constexpr PanelKernels kPanelInt8 = {};  // f32 is as fast without dot products of bytes

#endif

}  // namespace
}  // namespace vitrine
