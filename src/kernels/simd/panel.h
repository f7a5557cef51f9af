#pragma once
// Products of many rows, f32 operands. The activations are transposed once per product, so that lanes are rows of x;
// the weights of a panel are widened to plain f32 rows and broadcast one by one. Two vectors of rows times kTileOutputs
// weights stay in registers over the depth of a panel. This way round the weights need no transposition, which they
// would pay again for every product, and a row of x has a lane of its own: its bits cannot depend on its neighbours.
#include "kernels/simd/transpose.h"

namespace vitrine {
namespace {

constexpr size_t kTileRows = 2 * kLanes;                                  // rows of x in a tile
constexpr size_t kTileOutputs = kManyRegisters && kLanes >= 16 ? 14 : 6;  // accumulators: twice that
constexpr size_t kPanelOutputs = 128, kPanelDepth = 512;
// A panel lies as its weights do: [in, out] ones input by input, others weight row by row, so that expanding is copying.
// 16 floats more keep rows off one another's cache sets.
constexpr size_t kInputStride = kPanelOutputs + 16, kPanelStride = kPanelDepth + 16;
constexpr size_t kPanelFloats =
    kInputStride * kPanelDepth > kPanelStride* kPanelOutputs ? kInputStride* kPanelDepth : kPanelStride* kPanelOutputs;
static_assert(32 % kTileRows == 0, "callers cut rows at multiples of 32");

/// Packed x: tiles of kTileRows rows, each [k, kTileRows]; rows beyond the last are zeros.
size_t panel_x_bytes(size_t rows, size_t k) { return (rows + kTileRows - 1) / kTileRows * kTileRows * k * sizeof(float); }

void panel_pack_x(const float* x, size_t x_stride, size_t row0, size_t n, size_t, size_t k, void* packed) {
  for (size_t row = row0; row < row0 + n; row += kLanes) {
    float* out = static_cast<float*>(packed) + row / kTileRows * kTileRows * k + row % kTileRows;
    const size_t here = min_of(kLanes, row0 + n - row);
    for (size_t i = 0; i < k; i += kLanes) {
      const size_t depth = min_of(kLanes, k - i);
      Vec square[kLanes];
      for (size_t r = 0; r < kLanes; ++r)
        square[r] = r < here ? load_up_to(x + (row + r) * x_stride + i, depth) : hn::Zero(Tag());
      transpose(square);
      for (size_t c = 0; c < depth; ++c) store(square[c], out + (i + c) * kTileRows);
    }
    if (row + kLanes >= row0 + n && row % kTileRows == 0)  // the tile's second vector holds no rows
      for (size_t i = 0; i < k; ++i) store(hn::Zero(Tag()), out + i * kTileRows + kLanes);
  }
}

template <class W>
void expand_rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, float* panel) {
  for (size_t j = 0; j < n; ++j) {
    const char* row = w + j * stride;
    if constexpr (W::kIsBlock) {
      widen<W>(row + k0 / kBlock * W::kBytes, depth, panel + j * kPanelStride);
    } else {
      widen<W>(row + k0 * W::kBytes, depth, panel + j * kPanelStride);
    }
  }
}
template <class W>
void expand_columns(const char* w, size_t stride, size_t n, size_t k0, size_t depth, float* panel) {
  for (size_t i = 0; i < depth; ++i) {
    const char* row = w + (k0 + i) * stride;
    float* out = panel + i * kInputStride;
    for (size_t j = 0; j < n; j += kLanes) store_up_to(weight_load_up_to<W>(row + j * W::kBytes, n - j), out + j, n - j);
  }
}
void panel_expand(DType type, const void* weights, size_t stride, bool by_columns, size_t n, size_t k0, size_t depth,
                  void* buffer) {
  const char* w = static_cast<const char*>(weights);
  float* panel = static_cast<float*>(buffer);
  switch (type) {
    case DType::f32:
      return by_columns ? expand_columns<WeightF32>(w, stride, n, k0, depth, panel)
                        : expand_rows<WeightF32>(w, stride, n, k0, depth, panel);
    case DType::f16:
      return by_columns ? expand_columns<WeightF16>(w, stride, n, k0, depth, panel)
                        : expand_rows<WeightF16>(w, stride, n, k0, depth, panel);
    case DType::bf16:
      return by_columns ? expand_columns<WeightBf16>(w, stride, n, k0, depth, panel)
                        : expand_rows<WeightBf16>(w, stride, n, k0, depth, panel);
    case DType::q8_0: return expand_rows<WeightQ8>(w, stride, n, k0, depth, panel);
    case DType::q4_0: return expand_rows<WeightQ4>(w, stride, n, k0, depth, panel);
    default: return;
  }
}

/// Asks for the lines of what the caller reads next, one at a time.
class Asking {
 public:
  explicit Asking(const ReadNext& next)
      : at_(static_cast<const char*>(next.data)),
        end_(at_ + next.bytes),
        bytes_(next.bytes),
        stride_(next.stride),
        rows_(next.rows) {}
  HWY_INLINE void line() {
    if (rows_ == 0) return;
    __builtin_prefetch(at_, 0, 2);
    at_ += 64;
    if (at_ < end_) return;
    end_ += stride_;
    at_ = end_ - bytes_;
    --rows_;
  }

 private:
  const char *at_, *end_;
  size_t bytes_, stride_, rows_;
};

/// M outputs x V vectors of rows over the depth of the panel; y[row][0 .. M) of `rows` rows is set or added to.
/// `ahead` is memory that a later tile will read, `next` what comes after this product: a cache line of each is asked for at
/// every fourth step.
template <int M, int V, bool kByInput>
void panel_tile(const float* panel, const float* x, const char* ahead, Asking& next, size_t depth, size_t rows, float* y,
                size_t y_stride, bool add) {
  Vec sum[M][V];
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < V; ++v) sum[m][v] = hn::Zero(Tag());
  const auto step = [&](size_t i) HWY_ATTR {
    Vec value[V];
    for (int v = 0; v < V; ++v) value[v] = load(x + i * kTileRows + size_t(v) * kLanes);
    for (int m = 0; m < M; ++m) {
      const Vec weight = broadcast(panel[kByInput ? i * kInputStride + size_t(m) : size_t(m) * kPanelStride + i]);
      for (int v = 0; v < V; ++v) sum[m][v] = hn::MulAdd(weight, value[v], sum[m][v]);
    }
  };
  size_t i = 0;
  for (; i + 4 <= depth; i += 4) {
    __builtin_prefetch(ahead + i * 16, 0, 2);
    next.line();
    step(i);
    step(i + 1);
    step(i + 2);
    step(i + 3);
  }
  for (; i < depth; ++i) step(i);
  for (int v = 0; v < V; ++v) {
    Vec square[kLanes];
    for (size_t m = 0; m < kLanes; ++m) square[m] = m < M ? sum[m < M ? m : 0][v] : hn::Zero(Tag());
    transpose(square);
    const size_t here = rows > size_t(v) * kLanes ? min_of(kLanes, rows - size_t(v) * kLanes) : 0;
    for (size_t r = 0; r < here; ++r) {
      float* out = y + (size_t(v) * kLanes + r) * y_stride;
      store_n(add ? hn::Add(load_n(out, M), square[r]) : square[r], out, M);
    }
  }
}

using PanelTile = void (*)(const float*, const float*, const char*, Asking&, size_t, size_t, float*, size_t, bool);
template <int V, bool kByInput>
PanelTile panel_tile_of(size_t outputs) {
  static_assert(kTileOutputs == 14 || kTileOutputs == 6);
  switch (outputs) {
    case 1: return panel_tile<1, V, kByInput>;
    case 2: return panel_tile<2, V, kByInput>;
    case 3: return panel_tile<3, V, kByInput>;
    case 4: return panel_tile<4, V, kByInput>;
    case 5: return panel_tile<5, V, kByInput>;
    case 6: return panel_tile<6, V, kByInput>;
#if HWY_TARGET <= HWY_AVX3
    case 7: return panel_tile<7, V, kByInput>;
    case 8: return panel_tile<8, V, kByInput>;
    case 9: return panel_tile<9, V, kByInput>;
    case 10: return panel_tile<10, V, kByInput>;
    case 11: return panel_tile<11, V, kByInput>;
    case 12: return panel_tile<12, V, kByInput>;
    case 13: return panel_tile<13, V, kByInput>;
    case 14: return panel_tile<14, V, kByInput>;
#endif
    default: return nullptr;
  }
}

template <bool kByInput>
PanelTile panel_tile_for(size_t outputs, size_t rows) {
  return rows > kLanes ? panel_tile_of<2, kByInput>(outputs) : panel_tile_of<1, kByInput>(outputs);
}

void panel_multiply(const void* panel, const float*, size_t, const void* packed, size_t, size_t row0, size_t n_rows, size_t k,
                    size_t k0, size_t depth, bool by_columns, size_t n, float* y, size_t y_stride, bool add,
                    const ReadNext& next) {
  Asking asking(next);
  // Tiles of nearly equal size instead of full ones and a small rest.
  const size_t tiles = (n + kTileOutputs - 1) / kTileOutputs;
  for (size_t row = row0; row < row0 + n_rows; row += kTileRows) {
    const size_t rows = min_of(kTileRows, row0 + n_rows - row);
    const float* x = static_cast<const float*>(packed) + row / kTileRows * kTileRows * k + k0 * kTileRows;
    const char* below = reinterpret_cast<const char*>(x + kTileRows * k);  // the same slice of the next rows
    for (size_t t = 0; t < tiles; ++t) {
      const size_t begin = t * n / tiles, outputs = (t + 1) * n / tiles - begin;
      const PanelTile tile = by_columns ? panel_tile_for<true>(outputs, rows) : panel_tile_for<false>(outputs, rows);
      tile(static_cast<const float*>(panel) + begin * (by_columns ? 1 : kPanelStride), x, below + t * depth * 16, asking, depth,
           rows, y + row * y_stride + begin, y_stride, add);
    }
  }
}

}  // namespace
}  // namespace vitrine
