#pragma once
// Products of many rows in bf16 tiles with f32 sums. Rows of weights are rows of tile A just as they lie (a panel is
// plain bf16 rows); the activations are converted once per product into pairs, tile by tile, as tile B wants them. So a
// tile of C is [16 outputs, 16 rows of x] and is transposed when it goes to y. 2 x 2 tiles of C share their loads.
#include "kernels/amx/tile.h"
#include "kernels/simd/bf16.h"
#include "kernels/simd/expand.h"
#include "kernels/simd/transpose.h"
#ifdef __AVX512BF16__
#include "kernels/simd/unpacked.h"
#endif

namespace vitrine {
namespace {

// The depth is long because turning C costs as much as a few hundred elements of k; a piece of it, of 32 rows, stays in the first
// cache.
constexpr size_t kAmxOutputs = 128, kAmxDepth = 2048, kAmxPiece = 512;
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
HWY_INLINE Vec bf16_pairs(const float* x, size_t n) {
  if (n == 2 * kLanes) return hn::BitCast(Tag(), narrow_in_row(load(x), load(x + kLanes)));
  const Vec low = load_up_to(x, n), high = n > kLanes ? load_up_to(x + kLanes, n - kLanes) : hn::Zero(Tag());
  return hn::BitCast(Tag(), narrow_in_row(low, high));
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

#ifdef __AVX512BF16__

template <DType kType>
constexpr DType type_of(WeightDecoded<kType>) {
  return kType;
}
constexpr DType type_of(WeightQ8) { return DType::q8_0; }
constexpr DType type_of(WeightQ4) { return DType::q4_0; }

/// Weights of a block type come out of 256 as bytes, are scaled and rounded.
template <DType kType>
void amx_expand_blocks(const char* w, size_t stride, size_t n, size_t k0, size_t depth, char* panel) {
  using Source = Unpacked256<kType>;
  for (size_t j = 0; j < n; ++j) {
    const char* row = w + j * stride + row_bytes(kType, k0);
    auto* out = reinterpret_cast<int32_t*>(panel + j * kAmxStride);
    ask_for(row + kPanelRowsAhead * stride, row_bytes(kType, depth));
    for (size_t i = 0; i < depth; i += kLargestBlock, row += row_bytes(kType, kLargestBlock)) {
      Bytes bytes[kChunks];
      alignas(64) float scale[16], minimum[16];
      Source::read(row, min_of(kLargestBlock, depth - i), bytes, scale, minimum);
      const auto sixteen = [&](size_t c, __m128i q, size_t first) HWY_ATTR {
        const size_t group = (64 * c + first) / size_t(Source::kGroup);
        const __m512 numbers = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)), factor = _mm512_set1_ps(scale[group]);
        if constexpr (Source::kHasMinimum) return Vec{_mm512_fmsub_ps(numbers, factor, _mm512_set1_ps(minimum[group]))};
        return Vec{_mm512_mul_ps(numbers, factor)};
      };
      for (size_t c = 0; c < kChunks; ++c, out += 2 * kLanes) {
        const __m512i q = Source::kOffset == 0 ? bytes[c] : _mm512_sub_epi8(bytes[c], all_bytes(Source::kOffset));
        const __m256i half = _mm512_extracti64x4_epi64(q, 1);
        const Vec a = sixteen(c, _mm512_castsi512_si128(q), 0), b = sixteen(c, _mm512_extracti32x4_epi32(q, 1), 16);
        const Vec d = sixteen(c, _mm256_castsi256_si128(half), 32), e = sixteen(c, _mm256_extracti128_si256(half, 1), 48);
        hn::StoreU(narrow_in_row(a, b), IntTag(), out);
        hn::StoreU(narrow_in_row(d, e), IntTag(), out + kLanes);
      }
    }
  }
}

#endif

struct AmxPanel {
  using Unit = char;
  template <class W>
  static void rows(const char* w, size_t stride, size_t n, size_t k0, size_t depth, char* panel) {
#ifdef __AVX512BF16__
    if constexpr (W::kIsBlock) {
      if constexpr (has_integers(type_of(W()))) return amx_expand_blocks<type_of(W())>(w, stride, n, k0, depth, panel);
    }
#endif
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

using CTile = float[kTileSide][kTileSide];

/// A x B tiles of c, from 16 A outputs and 16 B rows; c[a][b] is set, or added to.
template <class Tiles, int A, int B>
HWY_INLINE void amx_block(Tiles& tiles, const char* panel, const char* x, size_t depth, CTile (*c)[2], bool add) {
  const auto begin = [&]<int T>(CTile& tile)
                         HWY_ATTR { add ? tiles.template load<T>(tile, kTileBytes) : tiles.template zero<T>(); };
  begin.template operator()<0>(c[0][0]);
  if constexpr (B > 1) begin.template operator()<1>(c[0][1]);
  if constexpr (A > 1) begin.template operator()<2>(c[1][0]);
  if constexpr (A > 1 && B > 1) begin.template operator()<3>(c[1][1]);
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
  tiles.template store<0>(c[0][0], kTileBytes);
  if constexpr (B > 1) tiles.template store<1>(c[0][1], kTileBytes);
  if constexpr (A > 1) tiles.template store<2>(c[1][0], kTileBytes);
  if constexpr (A > 1 && B > 1) tiles.template store<3>(c[1][1], kTileBytes);
}

/// 32 rows of x go through the panel in pieces that stay in the first cache, and their sums wait in tiles, which are turned when
/// they are complete.
template <class Tiles>
void amx_multiply(const void* panel, const float*, size_t, const void* packed, size_t, size_t row0, size_t n_rows, size_t k,
                  size_t k0, size_t depth, bool, size_t n, float* y, size_t y_stride, bool add, const ReadNext&) {
  Tiles tiles;
  alignas(64) CTile c[kAmxOutputs / kTileSide][2];
  for (size_t row = row0; row < row0 + n_rows; row += kAmxRows) {
    const size_t rows = min_of(kAmxRows, row0 + n_rows - row);
    const char* x = static_cast<const char*>(packed) + amx_tile_offset(row, k0, k);
    for (size_t i = 0; i < depth; i += kAmxPiece, x += kAmxPiece / kTileDepth * 2 * kPairTileBytes)
      for (size_t j = 0; j < n; j += 2 * kTileSide) {
        const char* w = static_cast<const char*>(panel) + j * kAmxStride + i * sizeof(uint16_t);
        const auto two_wide = rows > kTileSide ? amx_block<Tiles, 2, 2> : amx_block<Tiles, 2, 1>;
        const auto one_wide = rows > kTileSide ? amx_block<Tiles, 1, 2> : amx_block<Tiles, 1, 1>;
        const auto block = n - j > kTileSide ? two_wide : one_wide;
        block(tiles, w, x, min_of(kAmxPiece, depth - i), c + j / kTileSide, i > 0);
      }
    for (size_t j = 0; j < n; j += kTileSide)
      for (size_t r = 0; r < rows; r += kTileSide)
        turn_tile(c[j / kTileSide][r / kTileSide], min_of(kTileSide, rows - r), min_of(kTileSide, n - j),
                  y + (row + r) * y_stride + j, y_stride, add);
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
