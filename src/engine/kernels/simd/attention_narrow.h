#pragma once
// Products of queries with keys, and of weights with values, that lie in a type narrower than f32 (kernels/narrow.h). Each
// number is widened in registers and counts for all rows of the tile. A row's sums do not depend on the others' nor on tiles.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

/// part(line, j, v): the numbers j + v * kLanes ... of a line; j a multiple of 32.
struct LineF16 {
  static constexpr DType kType = DType::f16;
  static HWY_INLINE Vec part(const char* line, size_t j, size_t v) { return WeightF16::load(line + 2 * (j + v * kLanes)); }
};
struct LineQ8 {
  static constexpr DType kType = DType::q8_0;
  static HWY_INLINE Vec part(const char* line, size_t j, size_t v) {
    const hn::Rebind<int8_t, Tag> bytes;
    const auto q = hn::LoadU(bytes, reinterpret_cast<const int8_t*>(line + j + v * kLanes));
    return hn::ConvertTo(Tag(), hn::PromoteTo(IntTag(), q));
  }
};
struct LineQ4 {
  static constexpr DType kType = DType::q4_0;
  static HWY_INLINE Vec part(const char* line, size_t j, size_t v) {
    const size_t place = v * kLanes % kBlock;
    const hn::Rebind<uint8_t, Tag> bytes;
    const auto q = hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(line + (j + v * kLanes) / kBlock * 16 + place % 16));
    const auto wide = hn::PromoteTo(IntTag(), q);
#if HWY_TARGET <= HWY_AVX3  // the 16 possible values as a table, indexed by the lowest four bits of each lane
    const auto index = place >= 16 ? hn::ShiftRight<4>(wide) : wide;
    return Vec{_mm512_permutexvar_ps(index.raw, _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7))};
#else
    const auto nibble = place >= 16 ? hn::ShiftRight<4>(wide) : hn::And(wide, hn::Set(IntTag(), 15));
    return hn::ConvertTo(Tag(), hn::Sub(nibble, hn::Set(IntTag(), 8)));
#endif
  }
};

constexpr size_t kPart = kBlock / kLanes;  // vectors of 32 numbers
HWY_INLINE size_t whole_parts(size_t n) { return (n + kBlock - 1) / kBlock * kBlock; }
/// Vectors of a tile of R rows: whole parts, as many as the registers hold sums and numbers.
template <int R>
constexpr size_t narrow_vectors() {
  constexpr size_t kSums = kManyRegisters ? 16 : 8, kMost = R == 1 ? 8 : kSums / R;
  return kMost / kPart * kPart > kPart ? kMost / kPart * kPart : kPart;
}
/// Rows of one tile.
constexpr int kNarrowRows = kManyRegisters ? int(16 / kPart) : int(8 / kPart);

/// The first tile of a block asks for whole lines, in memory order, so many bytes before any tile reads them.
constexpr size_t kAskAhead = 4096;

HWY_INLINE Vec scales_at(const uint16_t* scales) { return WeightF16::load(reinterpret_cast<const char*>(scales)); }

/// Scores of the keys from j on, of V vectors. asks: this tile is the first.
template <class L, int R, size_t V>
HWY_INLINE void narrow_score_tile(const AttentionBlock& b, const float* q, size_t j, bool asks, float* scores) {
  constexpr bool kScaled = is_block(L::kType);
  constexpr size_t kStride = narrow_line_bytes(L::kType, kKeyBlock);
  const char* lines = reinterpret_cast<const char*>(b.k_narrow.lines);
  for (size_t c = 0; c < b.head_dim;) {
    const size_t group = c / kBlock, end = kScaled ? min_of(c + kBlock, b.head_dim) : b.head_dim;
    Vec sum[R][V];
    for (int r = 0; r < R; ++r)
      for (size_t v = 0; v < V; ++v) sum[r][v] = hn::Zero(Tag());
    for (; c < end; ++c) {
      if (asks) ask_for(lines + c * kStride + kAskAhead, kStride);
      Vec key[V];
      for (size_t v = 0; v < V; ++v) key[v] = L::part(lines + c * kStride, j, v);
      for (int r = 0; r < R; ++r) {
        const Vec weight = broadcast(q[size_t(r) * b.q_stride + c]);
        for (size_t v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(weight, key[v], sum[r][v]);
      }
    }
    for (size_t v = 0; v < V; ++v) {
      Vec factor = broadcast(b.scale);
      if constexpr (kScaled) factor = hn::Mul(factor, scales_at(b.k_narrow.scales + group * kKeyBlock + j + v * kLanes));
      for (int r = 0; r < R; ++r) {
        float* s = scores + size_t(r) * kKeyBlock + j + v * kLanes;
        store(group == 0 ? hn::Mul(sum[r][v], factor) : hn::MulAdd(sum[r][v], factor, load(s)), s);
      }
    }
  }
}

/// scores[r][j] = scale * q[r] . k[j] for the keys [begin, end) and some around them.
template <class L, int R>
HWY_INLINE void narrow_scores(const AttentionBlock& b, const float* q, size_t begin, size_t end, float* scores) {
  if constexpr (R > kNarrowRows) {
    narrow_scores<L, R / 2>(b, q, begin, end, scores);
    narrow_scores<L, R / 2>(b, q + R / 2 * b.q_stride, begin, end, scores + R / 2 * kKeyBlock);
  } else {
    constexpr size_t kV = narrow_vectors<R>();
    const size_t first = begin / kBlock * kBlock;
    size_t j = first;
    for (; j + kV * kLanes <= whole_parts(end); j += kV * kLanes) narrow_score_tile<L, R, kV>(b, q, j, j == first, scores);
    if constexpr (kV > kPart)
      for (; j < end; j += kBlock) narrow_score_tile<L, R, kPart>(b, q, j, j == first, scores);
  }
}

/// z[r][c ...] += sum over the keys [begin, end) of p[r][j] v[j][c ...], of V vectors, of which `columns` components count.
/// p: [R][kKeyBlock], of scaled types for each part [V / kPart][R][kKeyBlock], multiplied by the part's scales.
template <class L, int R, size_t V>
HWY_INLINE void narrow_value_tile(const AttentionBlock& b, const float* p, size_t begin, size_t end, size_t c, size_t columns,
                                  float* z) {
  constexpr bool kScaled = is_block(L::kType);
  constexpr size_t kPartBytes = narrow_line_bytes(L::kType, kBlock);
  const size_t stride = whole_parts(b.v_dim) / kBlock * kPartBytes;
  const char* line = reinterpret_cast<const char*>(b.v_narrow.lines) + begin * stride;
  const auto there = [&](size_t v) HWY_ATTR { return columns > v * kLanes ? columns - v * kLanes : 0; };
  Vec sum[R][V];
  for (int r = 0; r < R; ++r)
    for (size_t v = 0; v < V; ++v) sum[r][v] = load_up_to(z + size_t(r) * b.z_stride + c + v * kLanes, there(v));
  for (size_t j = begin; j < end; ++j, line += stride) {
    if (c == 0) ask_for(line + kAskAhead, stride);
    Vec value[V];
    for (size_t v = 0; v < V; ++v) value[v] = L::part(line, c, v);
    for (int r = 0; r < R; ++r)
      for (size_t v = 0; v < V; ++v)
        sum[r][v] = hn::MulAdd(broadcast(p[((kScaled ? v / kPart * R : 0) + size_t(r)) * kKeyBlock + j]), value[v], sum[r][v]);
  }
  for (int r = 0; r < R; ++r)
    for (size_t v = 0; v < V; ++v) store_up_to(sum[r][v], z + size_t(r) * b.z_stride + c + v * kLanes, there(v));
}
template <class L, int R, size_t V>
HWY_INLINE void narrow_value_columns(const AttentionBlock& b, const float* p, size_t begin, size_t end, size_t c, float* z) {
  const size_t columns = min_of(b.v_dim - c, V * kLanes);
  if constexpr (!is_block(L::kType)) return narrow_value_tile<L, R, V>(b, p, begin, end, c, columns, z);
  float scaled[V / kPart * R * kKeyBlock];
  for (size_t part = 0; part < V / kPart; ++part)
    for (size_t j = begin / kLanes * kLanes; j < end; j += kLanes) {
      if (c + part * kBlock >= b.v_dim) break;
      const Vec scale = scales_at(b.v_narrow.scales + (c / kBlock + part) * kKeyBlock + j);
      for (size_t r = 0; r < R; ++r) store(hn::Mul(load(p + r * kKeyBlock + j), scale), scaled + (part * R + r) * kKeyBlock + j);
    }
  narrow_value_tile<L, R, V>(b, scaled, begin, end, c, columns, z);
}
template <class L, int R>
HWY_INLINE void narrow_values(const AttentionBlock& b, const float* p, size_t begin, size_t end, float* z) {
  if constexpr (R > kNarrowRows) {
    narrow_values<L, R / 2>(b, p, begin, end, z);
    narrow_values<L, R / 2>(b, p + R / 2 * kKeyBlock, begin, end, z + R / 2 * b.z_stride);
  } else {
    constexpr size_t kV = narrow_vectors<R>();
    size_t c = 0;
    for (; c + kV * kLanes <= whole_parts(b.v_dim); c += kV * kLanes) narrow_value_columns<L, R, kV>(b, p, begin, end, c, z);
    if constexpr (kV > kPart)
      for (; c < b.v_dim; c += kBlock) narrow_value_columns<L, R, kPart>(b, p, begin, end, c, z);
  }
}

}  // namespace
}  // namespace vitrine
