#pragma once
// Products of two packed matrices. Rows of c are broadcast from a, columns are lanes of b: kPackedRows x 2 vectors of c
// stay in registers over the whole depth and go to memory as they lie.
#include <utility>

#include "kernels/simd/asking.h"
#include "kernels/simd/transpose.h"
#include "kernels/simd/words.h"

namespace vitrine {
namespace {

constexpr size_t kPackedRows = !kManyRegisters ? 6 : kLanes >= 16 ? 14 : 12;
constexpr size_t kPackedPitch =
    (kPackedRows + kLanes - 1) / kLanes * kLanes;  // words of a from one place in the depth to the next
constexpr size_t kPackedColumns = 2 * kLanes;
constexpr size_t kPackedDepth = 512;  // words; as the panels': the same sums, the same bits

// Rows of a that lie plain stay rows, so many words apart: 16 more than they hold keep them off one another's cache sets.
constexpr size_t kPackedFewWords = 128;
constexpr size_t kPackedRowStride = kPackedDepth + 16, kPackedShortStride = kPackedFewWords + 16;

HWY_INLINE size_t blocks_of(size_t n, size_t size) { return (n + size - 1) / size; }
HWY_INLINE size_t packed_row_stride(size_t words) { return words <= kPackedFewWords ? kPackedShortStride : kPackedRowStride; }
/// Words of a block of a, in either form.
HWY_INLINE size_t packed_a_block(size_t words) {
  const size_t plain = (kPackedRows - 1) * packed_row_stride(words) + words, transposed = kPackedPitch * words;
  return blocks_of(plain > transposed ? plain : transposed, 16) * 16;
}
template <class Words>
size_t packed_a_bytes(size_t rows, size_t depth) {
  return blocks_of(rows, kPackedRows) * packed_a_block(words_of<Words>(depth)) * sizeof(float);
}
template <class Words>
size_t packed_b_bytes(size_t depth, size_t columns) {
  return blocks_of(columns, kPackedColumns) * kPackedColumns * words_of<Words>(depth) * sizeof(float);
}

constexpr size_t kTogether = 128;  // lines

/// kLanes words of kLanes lines, one after the other in memory, as one word of each line after the other.
template <class Words, bool kWhole>
HWY_INLINE void pack_square(const float* x, size_t stride, size_t lines, size_t steps, size_t pitch, float* out) {
  Vec square[kLanes];
  for (size_t r = 0; r < kLanes; ++r)
    square[r] = kWhole || r < lines ? Words::along(x + r * stride, kWhole ? kLanes * Words::kSteps : steps) : hn::Zero(Tag());
  transpose(square);
  const size_t words = kWhole ? kLanes : min_of(kLanes, words_of<Words>(steps));
  for (size_t i = 0; i < words; ++i) store(square[i], out + i * pitch);
}
/// One word of kWidth lines that lie side by side, of fewer lines if not kWhole; zeros up to kPitch.
template <class Words, size_t kWidth, size_t kPitch, bool kWhole>
HWY_INLINE void pack_step(const float* x, size_t stride, size_t lines, size_t steps, float* out) {
  if (kWhole) lines = kWidth, steps = Words::kSteps;
  for (size_t lane = 0; lane < kPitch; lane += kLanes)
    store(lines > lane ? Words::across(x + lane, stride, min_of(kLanes, lines - lane), steps) : hn::Zero(Tag()), out + lane);
}

/// Blocks of kWidth of n lines (columns of b, rows of a transposed one), each [words of the depth, kPitch] and block_words after
/// the one before; lines beyond the last are zeros. Lines lie side by side in memory if `beside`, else one after the other.
template <class Words, size_t kWidth, size_t kPitch>
HWY_INLINE void pack_lines(const float* x, size_t stride, bool beside, size_t n, size_t depth, size_t block_words, float* out) {
  const size_t words = words_of<Words>(depth);
  if (beside) {  // a few blocks at a time: long pieces of x, and few places that are written in turn
    constexpr size_t kStride = kTogether / kWidth * kWidth;
    for (size_t begin = 0; begin < n; begin += kStride) {
      const size_t end = min_of(begin + kStride, n);
      for (size_t i = 0; i < words; ++i) {
        const size_t step = i * Words::kSteps;
        const float* from = x + step * stride;
        float* to = out + begin / kWidth * block_words + i * kPitch;
        size_t first = begin;
        if (depth - step >= Words::kSteps)
          for (; first + kWidth <= end; first += kWidth, to += block_words)
            pack_step<Words, kWidth, kPitch, true>(from + first, stride, kWidth, Words::kSteps, to);
        for (; first < end; first += kWidth, to += block_words)
          pack_step<Words, kWidth, kPitch, false>(from + first, stride, min_of(kWidth, end - first), depth - step, to);
      }
    }
    return;
  }
  constexpr size_t kSteps = kLanes * Words::kSteps;
  for (size_t first = 0; first < n; first += kWidth, out += block_words)
    for (size_t lane = 0; lane < kPitch; lane += kLanes) {
      const size_t in_block = min_of(kWidth, n - first), lines = in_block > lane ? min_of(kLanes, in_block - lane) : 0;
      const float* from = x + (first + lane) * stride;
      float* to = out + lane;
      size_t step = 0;
      if (lines == kLanes)
        for (; step + kSteps <= depth; step += kSteps, to += kLanes * kPitch)
          pack_square<Words, true>(from + step, stride, kLanes, kSteps, kPitch, to);
      for (; step < depth; step += kSteps, to += kLanes * kPitch)
        pack_square<Words, false>(from + step, stride, lines, depth - step, kPitch, to);
    }
}
template <class Words>
void packed_pack_a(const float* a, size_t stride, bool transposed, size_t rows, size_t depth, void* packed) {
  const size_t words = words_of<Words>(depth), block = packed_a_block(words), row_stride = packed_row_stride(words);
  auto* out = static_cast<float*>(packed);
  if (transposed) return pack_lines<Words, kPackedRows, kPackedPitch>(a, stride, true, rows, depth, block, out);
  for (size_t r = 0; r < rows; ++r) {
    const float* row = a + r * stride;
    float* to = out + r / kPackedRows * block + r % kPackedRows * row_stride;
    for (size_t i = 0; i < words; i += kLanes)
      store_up_to(Words::along(row + i * Words::kSteps, depth - i * Words::kSteps), to + i, words - i);
  }
}
template <class Words>
void packed_pack_b(const float* b, size_t stride, bool transposed, size_t depth, size_t columns, void* packed) {
  pack_lines<Words, kPackedColumns, kPackedColumns>(b, stride, !transposed, columns, depth,
                                                    kPackedColumns * words_of<Words>(depth), static_cast<float*>(packed));
}

/// M rows of c and up to kPackedColumns columns; `depth` in words. Words of a are kStep apart along the depth, kRow from row to
/// row. A cache line of what comes after this product is asked for at every fourth step.
template <class Words, size_t kStep, size_t kRow, int M>
void packed_tile(const float* a, const float* b, Asking& next, size_t depth, size_t columns, float* c, size_t c_stride,
                 bool add) {
  for (size_t m = 0; m < size_t(M); ++m)  // c is needed at the end, and comes from far
    for (size_t v = 0; v < 2; ++v) __builtin_prefetch(c + m * c_stride + v * kLanes, 1, 3);
  Vec sum[M][2];
  for (int m = 0; m < M; ++m) sum[m][0] = sum[m][1] = hn::Zero(Tag());
  const auto step = [&](size_t i) HWY_ATTR {
    const Vec left = load(b + i * kPackedColumns), right = load(b + i * kPackedColumns + kLanes);
    for (int m = 0; m < M; ++m) {
      const Vec value = broadcast(a[i * kStep + size_t(m) * kRow]);
      sum[m][0] = Words::multiply_add(value, left, sum[m][0]);
      sum[m][1] = Words::multiply_add(value, right, sum[m][1]);
    }
  };
  size_t i = 0;
  for (; i + 4 <= depth; i += 4) {
    next.line();
    step(i);
    step(i + 1);
    step(i + 2);
    step(i + 3);
  }
  for (; i < depth; ++i) step(i);
  if (columns >= kPackedColumns) {  // apart from the edges, whose loop over parts of vectors keeps the sums in memory
    if (add)
      for (int m = 0; m < M; ++m)
        for (int v = 0; v < 2; ++v) sum[m][v] = hn::Add(load(c + size_t(m) * c_stride + size_t(v) * kLanes), sum[m][v]);
    for (int m = 0; m < M; ++m)
      for (int v = 0; v < 2; ++v) store(sum[m][v], c + size_t(m) * c_stride + size_t(v) * kLanes);
    return;
  }
  for (int m = 0; m < M; ++m) {
    float* out = c + size_t(m) * c_stride;
    const size_t left = min_of(columns, kLanes), right = columns - left;
    store_up_to(add ? hn::Add(load_up_to(out, left), sum[m][0]) : sum[m][0], out, left);
    if (right > 0) store_up_to(add ? hn::Add(load_up_to(out + kLanes, right), sum[m][1]) : sum[m][1], out + kLanes, right);
  }
}

using PackedTile = void (*)(const float*, const float*, Asking&, size_t, size_t, float*, size_t, bool);
template <class Words, size_t kStep, size_t kRow, int... kBefore>
PackedTile packed_tile_among(size_t rows, std::integer_sequence<int, kBefore...>) {
  static constexpr PackedTile kTiles[] = {packed_tile<Words, kStep, kRow, kBefore + 1>...};
  return kTiles[rows - 1];
}
/// For 1 to kPackedRows rows.
template <class Words, size_t kStep, size_t kRow>
PackedTile packed_tile_of(size_t rows) {
  return packed_tile_among<Words, kStep, kRow>(rows, std::make_integer_sequence<int, int(kPackedRows)>());
}

template <class Words>
void packed_multiply(const void* a, bool a_turned, const void* b, size_t rows, size_t columns, size_t depth, float* c,
                     size_t c_stride, bool add, const ReadNext& next) {
  Asking asking(next);
  const size_t words = words_of<Words>(depth), block = packed_a_block(words);
  for (size_t j = 0; j < columns; j += kPackedColumns)
    for (size_t r = 0; r < rows; r += kPackedRows) {
      const size_t m = min_of(kPackedRows, rows - r);
      const PackedTile tile = a_turned                   ? packed_tile_of<Words, kPackedPitch, 1>(m)
                              : words <= kPackedFewWords ? packed_tile_of<Words, 1, kPackedShortStride>(m)
                                                         : packed_tile_of<Words, 1, kPackedRowStride>(m);
      tile(static_cast<const float*>(a) + r / kPackedRows * block, static_cast<const float*>(b) + j * words, asking, words,
           min_of(kPackedColumns, columns - j), c + r * c_stride + j, c_stride, add);
    }
}

/// The routines over one kind of words.
template <class Words>
constexpr PackedKernels packed_in() {
  return {.rows = kPackedRows,
          .columns = kPackedColumns,
          .depth = kPackedDepth * Words::kSteps,
          .a_bytes = packed_a_bytes<Words>,
          .b_bytes = packed_b_bytes<Words>,
          .pack_a = packed_pack_a<Words>,
          .pack_b = packed_pack_b<Words>,
          .multiply = packed_multiply<Words>};
}

}  // namespace
}  // namespace vitrine
