#pragma once
// Writes keys and values into blocks of a narrow type (kernels/narrow.h), and widens them.
#include <cstdint>

#include "kernels/narrow.h"

namespace vitrine {

/// A block as it lies in a cache: so many lines of so many numbers, the scales behind them.
NarrowBlock narrow_block(DType type, const std::byte* block, int64_t lines, int64_t numbers);

/// Rounds n rows [dim] of f32, `stride` floats from row to row, to the places [first, first + n) of a block: as keys (a number
/// in each of `dim` lines) or as values (a line each). A NaN or an infinity makes the 32 components around it NaN; f16 keeps
/// it to itself.
void store_keys(DType type, const float* rows, int64_t stride, int64_t n, int64_t first, int64_t dim, std::byte* block);
void store_values(DType type, const float* rows, int64_t stride, int64_t n, int64_t first, int64_t dim, std::byte* block);

/// The first n places as f32: keys [dim][kKeyBlock], values [n][dim].
void widen_keys(DType type, const std::byte* block, int64_t n, int64_t dim, float* keys);
void widen_values(DType type, const std::byte* block, int64_t n, int64_t dim, float* values);

}  // namespace vitrine
