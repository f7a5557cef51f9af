#pragma once
// Weights in blocks that are decoded to f32 (base/blocks) before their products. The values of each weight row go into a buffer
// in the first cache, a few blocks at a time, and all rows of x are multiplied with them there.
#include "base/blocks/all.h"
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

/// A type of weight that has no vectors of its own: whole blocks are decoded.
template <DType kType>
struct WeightDecoded {
  static constexpr bool kIsBlock = true;
  static constexpr size_t kBytes = DecodedBlock<kType>::kBytes, kElements = DecodedBlock<kType>::kElements;
};
template <class W>
inline constexpr bool kIsDecoded = false;
template <DType kType>
inline constexpr bool kIsDecoded<WeightDecoded<kType>> = true;

/// n elements of a stored row as f32: whole blocks.
template <DType kType>
HWY_NOINLINE void decode_row(const char* row, size_t n, float* y) {
  using Block = DecodedBlock<kType>;
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  for (size_t i = 0; i < n; i += Block::kElements, block += Block::kBytes) decode_values<Block>(block, y + i);
}
template <DType kType>
HWY_INLINE void decode_row(WeightDecoded<kType>, const char* row, size_t n, float* y) {
  decode_row<kType>(row, n, y);
}

using DecodeRow = void (*)(const char* row, size_t n, float* y);

/// J outputs of R rows of x; `chunk` is the bytes of kLargestBlock weights. As in dot_rows.h every (row, output) pair sums k in
/// one order, whatever the cuts and the rows.
template <int R, int J>
void dot_decoded_block(DecodeRow decode, size_t chunk, const char* w, size_t stride, size_t k, const float* x, size_t x_stride,
                       float* y, size_t y_stride) {
  Vec sum[J][R];
  for (int j = 0; j < J; ++j)
    for (int r = 0; r < R; ++r) sum[j][r] = hn::Zero(Tag());
  alignas(64) float wide[J][kLargestBlock];
  for (size_t i = 0; i < k; i += kLargestBlock, w += chunk) {
    const size_t n = min_of(kLargestBlock, k - i);
    for (int j = 0; j < J; ++j) {
      const char* row = w + size_t(j) * stride;
      for (size_t line = 0; line < chunk; line += 64) __builtin_prefetch(row + size_t(J) * stride + line, 0, 2);
      decode(row, n, wide[j]);
    }
    for (size_t e = 0; e < n; e += kLanes) {
      Vec weight[J];
      for (int j = 0; j < J; ++j) weight[j] = load(wide[j] + e);
      for (int r = 0; r < R; ++r) {
        const Vec v = load(x + size_t(r) * x_stride + i + e);
        for (int j = 0; j < J; ++j) sum[j][r] = hn::MulAdd(weight[j], v, sum[j][r]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < J; ++j) y[size_t(r) * y_stride + size_t(j)] = sum_of(sum[j][r]);
}

template <int R>
void dot_decoded_fixed(DecodeRow decode, size_t chunk, const char* w, size_t stride, size_t n, size_t k, const float* x,
                       size_t x_stride, float* y, size_t y_stride) {
  constexpr int kJ = R == 1 ? 4 : kManyRegisters || R <= 3 ? 3 : 1;
  size_t j = 0;
  for (; j + kJ <= n; j += kJ) dot_decoded_block<R, kJ>(decode, chunk, w + j * stride, stride, k, x, x_stride, y + j, y_stride);
  for (; j < n; ++j) dot_decoded_block<R, 1>(decode, chunk, w + j * stride, stride, k, x, x_stride, y + j, y_stride);
}

template <DType kType>
void dot_decoded(const void* weights, size_t stride, size_t n, size_t k, const float* x, size_t x_stride, size_t rows, float* y,
                 size_t y_stride) {
  const char* w = static_cast<const char*>(weights);
  constexpr DecodeRow decode = decode_row<kType>;
  constexpr size_t chunk = row_bytes(kType, kLargestBlock);
  with_rows(rows, [&](auto r) HWY_ATTR {
    dot_decoded_fixed<decltype(r)::value>(decode, chunk, w, stride, n, k, x, x_stride, y, y_stride);
  });
}

}  // namespace
}  // namespace vitrine
