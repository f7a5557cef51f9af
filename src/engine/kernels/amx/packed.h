#pragma once
// Products of two matrices rounded to bf16 in tiles, f32 sums. A block is 32 rows of a (or columns of b), in pairs of
// tiles 32 steps deep: a tile of a holds 32 steps of one row per tile row, one of b holds two neighboring steps of every
// column. So a tile of c lies in memory as it comes, and a sum goes on where it lies.
#include "kernels/amx/panel.h"

namespace vitrine {
namespace {

constexpr size_t kPackedSide = 2 * kTileSide;  // rows and columns of c in a block
constexpr size_t kPackedTileDepth = 512;       // a block of a (32 KiB) stays in the first cache
constexpr size_t kPackedTileBytes = kTileSide * kTileBytes;

inline size_t packed_tiles_bytes(size_t lines, size_t depth) {
  return round_up(lines, kPackedSide) * round_up(depth, kTileDepth) * sizeof(uint16_t);
}

using TileWords = int32_t[kTileSide][kTileSide];
HWY_INLINE void store_words(hn::Vec<IntTag> v, int32_t* p) { hn::StoreU(v, IntTag(), p); }

/// 16 lines, 32 steps of each in a row: elements of a line lie side by side.
template <bool kWhole>
HWY_INLINE void tile_of_lines(const float* x, size_t stride, size_t lines, size_t depth, TileWords& tile) {
  for (size_t r = 0; r < kTileSide; ++r)
    for (size_t i = 0; i < kTileDepth; i += 2 * kLanes) {
      const float* p = x + r * stride + i;
      const bool some = r < lines && i < depth;
      const Vec low = kWhole ? load(p) : some ? load_up_to(p, depth - i) : hn::Zero(Tag());
      const Vec high = kWhole                       ? load(p + kLanes)
                       : some && i + kLanes < depth ? load_up_to(p + kLanes, depth - i - kLanes)
                                                    : hn::Zero(Tag());
      store_words(narrow_in_row(low, high), &tile[r][i / 2]);
    }
}
/// 16 pairs of steps, 16 lines in each: elements of a step lie side by side.
template <bool kWhole>
HWY_INLINE void tile_of_steps(const float* x, size_t stride, size_t lines, size_t depth, TileWords& tile) {
  for (size_t p = 0; p < kTileSide; ++p)
    for (size_t r = 0; r < kTileSide; r += kLanes) {
      const float* at = x + 2 * p * stride + r;
      const Vec even = kWhole ? load(at) : r < lines && 2 * p < depth ? load_up_to(at, lines - r) : hn::Zero(Tag());
      const Vec odd = kWhole                           ? load(at + stride)
                      : r < lines && 2 * p + 1 < depth ? load_up_to(at + stride, lines - r)
                                                       : hn::Zero(Tag());
      store_words(narrow_in_pairs(even, odd), &tile[p][r]);
    }
}
HWY_INLINE void turn_words(const TileWords& from, TileWords& to) {
  for (size_t r = 0; r < kTileSide; r += kLanes)
    for (size_t c = 0; c < kTileSide; c += kLanes) {
      Vec square[kLanes];
      for (size_t i = 0; i < kLanes; ++i) square[i] = hn::BitCast(Tag(), hn::LoadU(IntTag(), &from[r + i][c]));
      transpose(square);
      for (size_t i = 0; i < kLanes; ++i) store_words(hn::BitCast(IntTag(), square[i]), &to[c + i][r]);
    }
}

/// One tile of the packed form from `lines` lines and `steps` steps of each, all 16 and 32 of them if kWhole.
template <bool kBySteps, bool kWhole>
HWY_INLINE void pack_tile(const float* x, size_t stride, bool beside, size_t lines, size_t steps, TileWords& tile) {
  alignas(64) TileWords other;
  TileWords& read = beside == kBySteps ? tile : other;
  if (beside) {
    tile_of_steps<kWhole>(x, stride, lines, steps, read);
  } else {
    tile_of_lines<kWhole>(x, stride, lines, steps, read);
  }
  if (beside != kBySteps) turn_words(other, tile);
}

/// Packs n lines of `depth`; `beside`: the elements of a step lie side by side, else those of a line. by_steps: the form of
/// b's tiles. Goes through x as it lies in memory.
template <bool kBySteps>
HWY_INLINE void pack_tiles(const float* x, size_t stride, bool beside, size_t n, size_t depth, void* packed) {
  const size_t tiles_deep = round_up(depth, kTileDepth) / kTileDepth;
  const auto tile_at = [&](size_t line, size_t i) HWY_ATTR {
    char* const out = static_cast<char*>(packed) + (line / kPackedSide * tiles_deep + i / kTileDepth) * 2 * kPackedTileBytes +
                      line % kPackedSide / kTileSide * kPackedTileBytes;
    TileWords& tile = *reinterpret_cast<TileWords*>(out);
    if (line >= n) {
      memset(out, 0, kPackedTileBytes);
      return;
    }
    const size_t lines = min_of(kTileSide, n - line), steps = min_of(kTileDepth, depth - i);
    const float* from = beside ? x + i * stride + line : x + line * stride + i;
    if (lines == kTileSide && steps == kTileDepth) {
      pack_tile<kBySteps, true>(from, stride, beside, lines, steps, tile);
    } else {
      pack_tile<kBySteps, false>(from, stride, beside, lines, steps, tile);
    }
  };
  const size_t end = round_up(n, kPackedSide);
  if (beside) {
    for (size_t i = 0; i < depth; i += kTileDepth)
      for (size_t line = 0; line < end; line += kTileSide) tile_at(line, i);
  } else {
    for (size_t line = 0; line < end; line += kTileSide)
      for (size_t i = 0; i < depth; i += kTileDepth) tile_at(line, i);
  }
}
template <class Tiles>
void amx_pack_a(const float* a, size_t stride, bool transposed, size_t rows, size_t depth, void* packed) {
  pack_tiles<false>(a, stride, transposed, rows, depth, packed);
}
template <class Tiles>
void amx_pack_b(const float* b, size_t stride, bool transposed, size_t depth, size_t columns, void* packed) {
  pack_tiles<true>(b, stride, !transposed, columns, depth, packed);
}

/// One tile of c, `rows` x `columns` of it, from or to memory; through a whole tile at the edges.
template <class Tiles, int T>
HWY_INLINE void begin_tile(Tiles& tiles, const float* c, size_t c_stride, size_t rows, size_t columns, bool add) {
  if (!add) return tiles.template zero<T>();
  if (rows >= kTileSide && columns >= kTileSide) return tiles.template load<T>(c, c_stride * sizeof(float));
  alignas(64) float whole[kTileSide][kTileSide] = {};
  for (size_t r = 0; r < min_of(rows, kTileSide); ++r)
    memcpy(whole[r], c + r * c_stride, min_of(columns, kTileSide) * sizeof(float));
  tiles.template load<T>(whole, kTileBytes);
}
template <class Tiles, int T>
HWY_INLINE void end_tile(Tiles& tiles, float* c, size_t c_stride, size_t rows, size_t columns) {
  if (rows >= kTileSide && columns >= kTileSide) return tiles.template store<T>(c, c_stride * sizeof(float));
  alignas(64) float whole[kTileSide][kTileSide];
  tiles.template store<T>(whole, kTileBytes);
  for (size_t r = 0; r < min_of(rows, kTileSide); ++r)
    memcpy(c + r * c_stride, whole[r], min_of(columns, kTileSide) * sizeof(float));
}

/// A x B tiles of c: tiles 0 and 1 beside one another, 2 and 3 below them. The lines of c at `following`, the next block, are
/// asked for meanwhile.
template <class Tiles, int A, int B>
HWY_INLINE void packed_block(Tiles& tiles, const char* a, const char* b, size_t depth, size_t rows, size_t columns, float* c,
                             size_t c_stride, bool add, const float* following) {
  float* const below = c + kTileSide * c_stride;
  begin_tile<Tiles, 0>(tiles, c, c_stride, rows, columns, add);
  if constexpr (B > 1) begin_tile<Tiles, 1>(tiles, c + kTileSide, c_stride, rows, columns - kTileSide, add);
  if constexpr (A > 1) begin_tile<Tiles, 2>(tiles, below, c_stride, rows - kTileSide, columns, add);
  if constexpr (A > 1 && B > 1)
    begin_tile<Tiles, 3>(tiles, below + kTileSide, c_stride, rows - kTileSide, columns - kTileSide, add);
  const size_t share = kTileDepth * kPackedSide / round_up(depth, kTileDepth) + 1;  // lines of c to ask for at a step
  size_t asked = 0;
  for (size_t i = 0; i < depth; i += kTileDepth, a += 2 * kPackedTileBytes, b += 2 * kPackedTileBytes) {
    tiles.template load<4>(a, kTileBytes);
    tiles.template load<6>(b, kTileBytes);
    for (size_t end = min_of(asked + share, kPackedSide); asked < end; ++asked) {
      __builtin_prefetch(following + asked * c_stride, 1, 3);
      __builtin_prefetch(following + asked * c_stride + kTileSide, 1, 3);
    }
    tiles.template dot<0, 4, 6>();
    if constexpr (B > 1) {
      tiles.template load<7>(b + kPackedTileBytes, kTileBytes);
      tiles.template dot<1, 4, 7>();
    }
    if constexpr (A > 1) {
      tiles.template load<5>(a + kPackedTileBytes, kTileBytes);
      tiles.template dot<2, 5, 6>();
      if constexpr (B > 1) tiles.template dot<3, 5, 7>();
    }
  }
  end_tile<Tiles, 0>(tiles, c, c_stride, rows, columns);
  if constexpr (B > 1) end_tile<Tiles, 1>(tiles, c + kTileSide, c_stride, rows, columns - kTileSide);
  if constexpr (A > 1) end_tile<Tiles, 2>(tiles, below, c_stride, rows - kTileSide, columns);
  if constexpr (A > 1 && B > 1) end_tile<Tiles, 3>(tiles, below + kTileSide, c_stride, rows - kTileSide, columns - kTileSide);
}

template <class Tiles>
void amx_packed_multiply(const void* a, bool /*a_turned*/, const void* b, size_t rows, size_t columns, size_t depth, float* c,
                         size_t c_stride, bool add, const ReadNext&) {
  Tiles tiles;
  const size_t block = kPackedSide * round_up(depth, kTileDepth) * sizeof(uint16_t);
  const char* left = static_cast<const char*>(a);
  for (size_t r = 0; r < rows; r += kPackedSide, left += block) {
    const char* top = static_cast<const char*>(b);
    for (size_t j = 0; j < columns; j += kPackedSide, top += block) {
      float* out = c + r * c_stride + j;
      const float* following = j + kPackedSide < columns ? out + kPackedSide : c + (r + kPackedSide) * c_stride;
      const size_t m = min_of(kPackedSide, rows - r), n = min_of(kPackedSide, columns - j);
      if (m > kTileSide && n > kTileSide) {
        packed_block<Tiles, 2, 2>(tiles, left, top, depth, m, n, out, c_stride, add, following);
      } else if (m > kTileSide) {
        packed_block<Tiles, 2, 1>(tiles, left, top, depth, m, n, out, c_stride, add, following);
      } else if (n > kTileSide) {
        packed_block<Tiles, 1, 2>(tiles, left, top, depth, m, n, out, c_stride, add, following);
      } else {
        packed_block<Tiles, 1, 1>(tiles, left, top, depth, m, n, out, c_stride, add, following);
      }
    }
  }
}

/// The routines over one form of tiles.
template <class Tiles>
constexpr PackedKernels amx_packed() {
  return {.rows = kPackedSide,
          .columns = kPackedSide,
          .depth = kPackedTileDepth,
          .a_bytes = packed_tiles_bytes,
          .b_bytes = [](size_t depth, size_t columns) { return packed_tiles_bytes(columns, depth); },
          .pack_a = amx_pack_a<Tiles>,
          .pack_b = amx_pack_b<Tiles>,
          .multiply = amx_packed_multiply<Tiles>};
}

}  // namespace
}  // namespace vitrine
