#pragma once
// Products of many rows in bf16 tiles with f32 sums. Rows of weights are rows of tile A just as they lie (a panel is
// plain bf16 rows); the activations are converted once per product into pairs, tile by tile, as tile B wants them. So a
// tile of C is [16 outputs, 16 rows of x] and is transposed when it goes to y. 2 x 2 tiles of C share their loads.
#include "kernels/amx/tile.h"
#include "kernels/simd/bf16.h"
#include "kernels/simd/expand.h"
#include "kernels/simd/transpose.h"

namespace vitrine {
namespace {

// The depth is long because turning C costs as much as a few hundred elements of k.
constexpr size_t kAmxOutputs = 128, kAmxDepth = 2048;
static_assert(kAmxDepth % kLargestBlock == 0, "a panel begins at a block");
constexpr size_t kAmxStride =
    (kAmxDepth + 32) * sizeof(uint16_t);                   // bytes between rows; 64 more keep them off one another's sets
constexpr size_t kAmxRows = 2 * kTileSide;                 // rows of x in a block
constexpr size_t kPairTileBytes = kTileSide * kTileBytes;  // a tile of packed x: 32 deep, 16 rows

HWY_INLINE size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/// Packed x: blocks of 32 rows, each [k / 32 rounded up] times two tiles of 16 pairs x 16 rows; zeros beyond rows and k.
inline size_t amx_x_bytes(size_t rows, size_t k) { return round_up(rows, kAmxRows) * round_up(k, kTileDepth) * sizeof(uint16_t); }
HWY_INLINE size_t amx_tile_offset(size_t row, size_t i, size_t k) {
  const size_t block = row / kAmxRows * (round_up(k, kTileDepth) / kTileDepth) + i / kTileDepth;
  return (2 * block + row % kAmxRows / kTileSide) * kPairTileBytes;
}

/// kLanes pairs of x[0 .. n), n <= 2 kLanes, each as one lane.
inline Vec bf16_pairs(const float* x, size_t n) {
  float buffer[2 * kLanes] = {};
  if (n < 2 * kLanes) {
    memcpy(buffer, x, n * sizeof(float));
    x = buffer;
  }
  Vec even, odd;
  hn::LoadInterleaved2(Tag(), x, even, odd);
  return hn::BitCast(Tag(), hn::Or(bf16_bits(even), hn::ShiftLeft<16>(bf16_bits(odd))));
}

template <class Tiles>
void amx_pack_x(const float* x, size_t x_stride, size_t row0, size_t n, size_t, size_t k, void* packed) {
  const size_t end = round_up(row0 + n, kAmxRows), k_end = round_up(k, kTileDepth);
  for (size_t row = row0; row < end; row += kLanes)
    for (size_t i = 0; i < k_end; i += 2 * kLanes) {
      Vec square[kLanes];
      for (size_t r = 0; r < kLanes; ++r)
        square[r] =
            row + r < row0 + n && i < k ? bf16_pairs(x + (row + r) * x_stride + i, min_of(2 * kLanes, k - i)) : hn::Zero(Tag());
      transpose(square);
      char* tile = static_cast<char*>(packed) + amx_tile_offset(row, i, k);
      for (size_t c = 0; c < kLanes; ++c) {
        const size_t pair = i % kTileDepth / 2 + c;
        hn::StoreU(hn::BitCast(IntTag(), square[c]), IntTag(),
                   reinterpret_cast<int32_t*>(tile + pair * kTileBytes) + row % kTileSide);
      }
    }
}

struct AmxPanel {
  using Unit = char;
  template <class W>
  static void rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, char* panel) {
    for (size_t j = 0; j < n; ++j) {
      auto* out = reinterpret_cast<uint16_t*>(panel + j * kAmxStride);
      narrow<W>(w + j * stride + bytes_before<W>(k0), depth, out);
      memset(out + depth, 0, (round_up(depth, kTileDepth) - depth) * sizeof(uint16_t));
    }
  }
  template <class W>
  static void columns(const char* w, size_t stride, size_t n, size_t k0, size_t depth, char* panel) {
    for (size_t i = 0; i < round_up(depth, kTileDepth); i += kLanes)
      for (size_t j = 0; j < n; j += kLanes) {
        const size_t outputs = min_of(kLanes, n - j);
        Vec square[kLanes];
        for (size_t r = 0; r < kLanes; ++r)
          square[r] = i + r < depth ? weight_load_up_to<W>(w + (k0 + i + r) * stride + j * W::kBytes, outputs) : hn::Zero(Tag());
        transpose(square);
        for (size_t c = 0; c < outputs; ++c)
          store_bf16(square[c], reinterpret_cast<uint16_t*>(panel + (j + c) * kAmxStride) + i, kLanes);
      }
  }
};

inline void amx_expand(DType type, const void* w, size_t stride, bool by_columns, size_t n, size_t k0, size_t depth,
                       void* panel) {
  // The last tile of outputs is read whole.
  for (size_t j = n; j < round_up(n, kTileSide); ++j)
    memset(static_cast<char*>(panel) + j * kAmxStride, 0, round_up(depth, kTileDepth) * sizeof(uint16_t));
  expand_weights<AmxPanel>(type, w, stride, by_columns, n, k0, depth, panel);
}

/// c [16 outputs, 16 rows] to y [rows, y_stride], `rows` x `outputs` of it; set or added.
inline void turn_tile(const float (&c)[kTileSide][kTileSide], size_t rows, size_t outputs, float* y, size_t y_stride, bool add) {
  for (size_t j = 0; j < outputs; j += kLanes)
    for (size_t r = 0; r < rows; r += kLanes) {
      Vec square[kLanes];
      for (size_t m = 0; m < kLanes; ++m) square[m] = load(&c[j + m][r]);
      transpose(square);
      const size_t here = min_of(kLanes, outputs - j);
      for (size_t s = 0; s < min_of(kLanes, rows - r); ++s) {
        float* out = y + (r + s) * y_stride + j;
        store_up_to(add ? hn::Add(load_up_to(out, here), square[s]) : square[s], out, here);
      }
    }
}

/// A x B tiles of C: up to 16 A outputs and 16 B rows.
template <class Tiles, int A, int B>
HWY_INLINE void amx_block(Tiles& tiles, const char* panel, const char* x, size_t depth, size_t rows, size_t outputs, float* y,
                          size_t y_stride, bool add) {
  tiles.template zero<0>();
  if constexpr (B > 1) tiles.template zero<1>();
  if constexpr (A > 1) tiles.template zero<2>();
  if constexpr (A > 1 && B > 1) tiles.template zero<3>();
  for (size_t i = 0; i < depth; i += kTileDepth, x += 2 * kPairTileBytes) {
    tiles.template load<4>(panel + i * sizeof(uint16_t), kAmxStride);
    tiles.template load<6>(x, kTileBytes);
    tiles.template dot<0, 4, 6>();
    if constexpr (B > 1) {
      tiles.template load<7>(x + kPairTileBytes, kTileBytes);
      tiles.template dot<1, 4, 7>();
    }
    if constexpr (A > 1) {
      tiles.template load<5>(panel + kTileSide * kAmxStride + i * sizeof(uint16_t), kAmxStride);
      tiles.template dot<2, 5, 6>();
      if constexpr (B > 1) tiles.template dot<3, 5, 7>();
    }
  }
  alignas(64) float c[kTileSide][kTileSide];
  const size_t first_rows = min_of(rows, kTileSide), first_outputs = min_of(outputs, kTileSide);
  tiles.template store<0>(c, kTileBytes);
  turn_tile(c, first_rows, first_outputs, y, y_stride, add);
  if constexpr (B > 1) {
    tiles.template store<1>(c, kTileBytes);
    turn_tile(c, rows - kTileSide, first_outputs, y + kTileSide * y_stride, y_stride, add);
  }
  if constexpr (A > 1) {
    tiles.template store<2>(c, kTileBytes);
    turn_tile(c, first_rows, outputs - kTileSide, y + kTileSide, y_stride, add);
  }
  if constexpr (A > 1 && B > 1) {
    tiles.template store<3>(c, kTileBytes);
    turn_tile(c, rows - kTileSide, outputs - kTileSide, y + kTileSide * y_stride + kTileSide, y_stride, add);
  }
}

template <class Tiles>
void amx_multiply(const void* panel, const float*, size_t, const void* packed, size_t, size_t row0, size_t n_rows, size_t k,
                  size_t k0, size_t depth, bool, size_t n, float* y, size_t y_stride, bool add, const ReadNext&) {
  Tiles tiles;
  for (size_t row = row0; row < row0 + n_rows; row += kAmxRows) {
    const size_t rows = min_of(kAmxRows, row0 + n_rows - row);
    const char* x = static_cast<const char*>(packed) + amx_tile_offset(row, k0, k);
    for (size_t j = 0; j < n; j += 2 * kTileSide) {
      const size_t outputs = min_of(2 * kTileSide, n - j);
      const char* w = static_cast<const char*>(panel) + j * kAmxStride;
      float* out = y + row * y_stride + j;
      if (rows > kTileSide) {
        if (outputs > kTileSide) {
          amx_block<Tiles, 2, 2>(tiles, w, x, depth, rows, outputs, out, y_stride, add);
        } else {
          amx_block<Tiles, 1, 2>(tiles, w, x, depth, rows, outputs, out, y_stride, add);
        }
      } else if (outputs > kTileSide) {
        amx_block<Tiles, 2, 1>(tiles, w, x, depth, rows, outputs, out, y_stride, add);
      } else {
        amx_block<Tiles, 1, 1>(tiles, w, x, depth, rows, outputs, out, y_stride, add);
      }
    }
  }
}

/// The routines over one form of tiles.
template <class Tiles>
constexpr PanelKernels amx_panel() {
  return {.outputs = kAmxOutputs,
          .depth = kAmxDepth,
          .panel_bytes = kAmxOutputs * kAmxStride,
          .x_bytes = amx_x_bytes,
          .pack_x = amx_pack_x<Tiles>,
          .expand = amx_expand,
          .multiply = amx_multiply<Tiles>};
}

}  // namespace
}  // namespace vitrine
