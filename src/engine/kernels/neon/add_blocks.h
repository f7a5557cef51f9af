#pragma once
// Products of blocks in registers with rows of int8 activations, 32 weights at once.
#include "kernels/simd/block_registers.h"
#include "kernels/simd/dot_integers.h"

namespace vitrine {
namespace {

/// An entry for each group of so many weights.
template <int kGroup>
HWY_INLINE void store_scales(Sixteen integers, float factor, float* to) {
  store_floats<int(kLargestBlock) / kGroup>(integers, factor, to);
}
/// The scales and minima of a block: of 16 groups, or of 8.
template <class W>
struct BlockScales {
  float scale[kLargestBlock / W::kGroup], minimum[kLargestBlock / W::kGroup];
  BlockScales() = default;
  HWY_INLINE explicit BlockScales(const uint8_t* block) {
    const GroupScales integers = W::scales(block);
    store_scales<W::kGroup>(integers.scale, integers.d, scale);
    if constexpr (W::kHasMinimum) store_scales<W::kGroup>(integers.minimum, integers.dmin, minimum);
  }
};

template <class W, int R, int J, int C = 0>
HWY_INLINE void add_chunks(const uint8_t* const (&block)[J], const ActivationBlock* x, size_t x_stride,
                           const BlockScales<W> (&of)[J], IntegerSum (&sum)[R][J]) {
  Bytes w[J];
  for (int j = 0; j < J; ++j) {
    w[j] = W::template weights<C>(block[j]);
    if constexpr (W::kOffset != 0) w[j] = less(w[j], all_bytes(W::kOffset));
  }
  for (int r = 0; r < R; ++r) {
    const ActivationBlock& row = x[size_t(r) * x_stride];
    const Bytes q = bytes_at(row.q + 32 * C);
    for (int j = 0; j < J; ++j) sum[r][j] = add_part<W::kGroup>(sum[r][j], w[j], q, of[j].scale, row.scale, C);
  }
  if constexpr (C + 1 < kChunks) add_chunks<W, R, J, C + 1>(block, x, x_stride, of, sum);
}

template <class W, int R, int J>
HWY_INLINE void add_blocks(const uint8_t* const (&block)[J], const ActivationBlock* x, size_t x_stride, IntegerSum (&sum)[R][J]) {
  BlockScales<W> of[J];
  for (int j = 0; j < J; ++j) of[j] = BlockScales<W>(block[j]);
  add_chunks<W, R, J>(block, x, x_stride, of, sum);
  if constexpr (W::kHasMinimum)
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < J; ++j) sum[r][j] = take_minima<W::kGroup>(sum[r][j], of[j].minimum, x[size_t(r) * x_stride].sum);
}

}  // namespace
}  // namespace vitrine
