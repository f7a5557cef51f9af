#pragma once
// Products of many rows. The activations are transposed once per product, so that lanes are rows of x; the weights of a
// panel are widened to plain rows of words (f32 here) and broadcast one by one. kRowVectors vectors of rows times
// kTileOutputs weights stay in registers over the depth of a panel. This way round the weights need no transposition, which they
// would pay again for every product, and a row of x has a lane of its own: its bits cannot depend on its neighbors.
#include <utility>

#include "kernels/simd/asking.h"
#include "kernels/simd/expand.h"
#include "kernels/simd/transpose.h"
#include "kernels/simd/words.h"

namespace vitrine {
namespace {

constexpr size_t kRowVectors = kLanes >= 8 || !kManyRegisters ? 2 : 4;  // of rows of x in a tile
constexpr size_t kTileRows = kRowVectors * kLanes;
constexpr size_t kTileOutputs = kLanes < 8 ? 4 : kManyRegisters && kLanes >= 16 ? 14 : 6;  // so many accumulators a vector
constexpr size_t kPanelOutputs = 128, kPanelDepth = 512;                                   // in words, as the strides below
// A panel lies as its weights do: [in, out] ones input by input, others weight row by row, so that expanding is copying.
// 16 floats more keep rows off one another's cache sets.
constexpr size_t kInputStride = kPanelOutputs + 16, kPanelStride = kPanelDepth + 16;
constexpr size_t kPanelFloats =
    kInputStride * kPanelDepth > kPanelStride* kPanelOutputs ? kInputStride* kPanelDepth : kPanelStride* kPanelOutputs;
static_assert(kPanelDepth % kLargestBlock == 0, "a panel begins at a block");
static_assert(32 % kTileRows == 0, "callers cut rows at multiples of 32");
static_assert(kTileOutputs <= kLanes, "a tile is transposed in squares of kLanes");

/// Packed x: tiles of kTileRows rows, each [words of k, kTileRows]; rows beyond the last are zeros.
template <class Words>
size_t panel_x_bytes(size_t rows, size_t k) {
  return (rows + kTileRows - 1) / kTileRows * kTileRows * words_of<Words>(k) * sizeof(float);
}

template <class Words>
void panel_pack_x(const float* x, size_t x_stride, size_t row0, size_t n, size_t, size_t k, void* packed) {
  const size_t words = words_of<Words>(k);
  for (size_t row = row0; row < row0 + n; row += kLanes) {
    float* out = static_cast<float*>(packed) + row / kTileRows * kTileRows * words + row % kTileRows;
    const size_t here = min_of(kLanes, row0 + n - row);
    for (size_t i = 0; i < words; i += kLanes) {
      const size_t step = i * Words::kSteps;
      Vec square[kLanes];
      for (size_t r = 0; r < kLanes; ++r)
        square[r] = r < here ? Words::along(x + (row + r) * x_stride + step, k - step) : hn::Zero(Tag());
      transpose(square);
      for (size_t c = 0; c < min_of(kLanes, words - i); ++c) store(square[c], out + (i + c) * kTileRows);
    }
    if (row + kLanes >= row0 + n)  // the tile's last vectors may hold no rows
      for (size_t i = 0; i < words; ++i)
        for (size_t v = kLanes; v < kTileRows - row % kTileRows; v += kLanes) store(hn::Zero(Tag()), out + i * kTileRows + v);
  }
}

/// Words of a panel that lies input by input, or weight row by row.
template <bool kByInput>
struct PanelWords {
  const float* at;
  HWY_INLINE float operator()(size_t i, int m) const {
    return at[kByInput ? i * kInputStride + size_t(m) : size_t(m) * kPanelStride + i];
  }
  PanelWords from(size_t output) const { return {at + output * (kByInput ? 1 : kPanelStride)}; }
};
/// Words of weight rows where they are stored, which may be any even address.
struct StoredWords {
  const char* at;
  size_t stride;
  HWY_INLINE float operator()(size_t i, int m) const {
    float word;
    memcpy(&word, at + size_t(m) * stride + i * sizeof(float), sizeof word);
    return word;
  }
  StoredWords from(size_t output) const { return {at + output * stride, stride}; }
};

/// M outputs x V vectors of rows over the depth of the panel, in words; y[row][0 .. M) of `rows` rows is set or added to.
/// `ahead` is memory that a later tile will read, `next` what comes after this product: some of each is asked for at every
/// fourth step.
template <class Words, class Weights, int M, int V>
void panel_tile(const Weights& weights, const float* x, const char* ahead, Asking& next, size_t depth, size_t rows, float* y,
                size_t y_stride, bool add) {
  Vec sum[M][V];
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < V; ++v) sum[m][v] = hn::Zero(Tag());
  const auto step = [&](size_t i) HWY_ATTR {
    Vec value[V];
    for (int v = 0; v < V; ++v) value[v] = load(x + i * kTileRows + size_t(v) * kLanes);
    for (int m = 0; m < M; ++m) {
      const Vec weight = broadcast(weights(i, m));
      for (int v = 0; v < V; ++v) sum[m][v] = Words::multiply_add(weight, value[v], sum[m][v]);
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
    Vec own[M];
    for (int m = 0; m < M; ++m) own[m] = sum[m][v];
    const size_t first = size_t(v) * kLanes, here = rows > first ? min_of(kLanes, rows - first) : 0;
    store_transposed<M>(own, here, y + first * y_stride, y_stride, add);
  }
}

template <class Weights>
using PanelTile = void (*)(const Weights&, const float*, const char*, Asking&, size_t, size_t, float*, size_t, bool);
template <class Words, int V, class Weights, int... kBefore>
PanelTile<Weights> panel_tile_among(size_t outputs, std::integer_sequence<int, kBefore...>) {
  static constexpr PanelTile<Weights> kTiles[] = {panel_tile<Words, Weights, kBefore + 1, V>...};
  return kTiles[outputs - 1];
}
/// For 1 to kTileOutputs outputs.
template <class Words, class Weights>
PanelTile<Weights> panel_tile_for(size_t outputs, size_t rows) {
  constexpr std::make_integer_sequence<int, int(kTileOutputs)> kSizes;
  return rows > kLanes ? panel_tile_among<Words, kRowVectors, Weights>(outputs, kSizes)
                       : panel_tile_among<Words, 1, Weights>(outputs, kSizes);
}

template <class Words, class Weights>
void panel_tiles(const Weights& weights, const void* packed, size_t row0, size_t n_rows, size_t k, size_t k0, size_t depth,
                 size_t n, float* y, size_t y_stride, bool add, const ReadNext& next) {
  const size_t all_words = words_of<Words>(k), words = words_of<Words>(depth);
  // Tiles of nearly equal size instead of full ones and a small rest.
  const size_t tiles = (n + kTileOutputs - 1) / kTileOutputs;
  Asking asking(next, (n_rows + kTileRows - 1) / kTileRows * tiles * (words / 4));
  for (size_t row = row0; row < row0 + n_rows; row += kTileRows) {
    const size_t rows = min_of(kTileRows, row0 + n_rows - row);
    const float* x = static_cast<const float*>(packed) + row / kTileRows * kTileRows * all_words + k0 / Words::kSteps * kTileRows;
    const bool is_last = row + kTileRows >= row0 + n_rows;
    const char* below =
        reinterpret_cast<const char*>(is_last ? x : x + kTileRows * all_words);  // the same slice of the next rows
    for (size_t t = 0; t < tiles; ++t) {
      const size_t begin = t * n / tiles, outputs = (t + 1) * n / tiles - begin;
      const PanelTile<Weights> tile = panel_tile_for<Words, Weights>(outputs, rows);
      tile(weights.from(begin), x, below + t * words * 16, asking, words, rows, y + row * y_stride + begin, y_stride, add);
    }
  }
}

template <class Words>
void panel_multiply(const void* panel, const float*, size_t, const void* packed, size_t, size_t row0, size_t n_rows, size_t k,
                    size_t k0, size_t depth, bool by_columns, size_t n, float* y, size_t y_stride, bool add,
                    const ReadNext& next) {
  const auto* words = static_cast<const float*>(panel);
  const auto tiles = [&](const auto& weights) {
    panel_tiles<Words>(weights, packed, row0, n_rows, k, k0, depth, n, y, y_stride, add, next);
  };
  by_columns ? tiles(PanelWords<true>{words}) : tiles(PanelWords<false>{words});
}

template <class Words>
void panel_multiply_in_place(const void* w, size_t stride, const void* packed, size_t rows, size_t k, size_t k0, size_t depth,
                             size_t n, float* y, size_t y_stride, bool add, const ReadNext& next) {
  const char* first = static_cast<const char*>(w) + k0 / Words::kSteps * sizeof(float);
  panel_tiles<Words>(StoredWords{first, stride}, packed, 0, rows, k, k0, depth, n, y, y_stride, add, next);
}

/// The routines over one kind of words, with the layout that holds weights in it.
template <class Words, class Layout>
constexpr PanelKernels panel_in() {
  return {.outputs = kPanelOutputs,
          .depth = kPanelDepth * Words::kSteps,
          .panel_bytes = kPanelFloats * sizeof(float),
          .x_bytes = panel_x_bytes<Words>,
          .pack_x = panel_pack_x<Words>,
          .expand = expand_weights<Layout>,
          .multiply = panel_multiply<Words>,
          .in_place_type = Words::kStored,
          .in_place_step = Words::kSteps,
          .multiply_in_place = panel_multiply_in_place<Words>};
}

}  // namespace
}  // namespace vitrine
