#include "ops/narrow_store.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/table.h"

namespace vitrine {
namespace {

constexpr int64_t kLines = static_cast<int64_t>(kKeyBlock), kGroup = static_cast<int64_t>(kBlock);

// The codes of up to 32 components of one row, as numbers of BlockQ8_0 or BlockQ4_0 (0 to 15), and their scale.
uint16_t encode(DType type, const float* x, int64_t n, uint8_t* codes) {
  alignas(64) float all[kBlock] = {};
  std::copy(x, x + n, all);
  if (type == DType::q8_0) {
    ActivationBlock block;
    kernels().quantize_int8(all, kBlock, &block);
    std::copy(block.q, block.q + kBlock, reinterpret_cast<int8_t*>(codes));
    return f32_to_f16(block.scale[0]);
  }
  float furthest = 0, sum = 0;
  for (const float value : all) {
    sum += value - value;  // NaN if any is not finite
    if (std::fabs(value) > std::fabs(furthest)) furthest = value;
  }
  const float scale = furthest / -8, inverse = std::fabs(scale) >= 1e-30f ? 1 / scale : 0;
  if (sum != 0) {
    std::fill(codes, codes + kBlock, uint8_t{8});
    return f32_to_f16(std::numeric_limits<float>::quiet_NaN());
  }
  for (size_t i = 0; i < kBlock; ++i) codes[i] = static_cast<uint8_t>(std::min(static_cast<int>(all[i] * inverse + 8.5f), 15));
  return f32_to_f16(scale);
}

void put(DType type, std::byte* line, int64_t i, uint8_t code) {
  if (type == DType::q8_0) {
    line[i] = std::byte{code};
    return;
  }
  std::byte& pair = line[i / kGroup * 16 + i % 16];
  pair = i % kGroup < 16 ? (pair & std::byte{0xf0}) | std::byte{code} : (pair & std::byte{0x0f}) | std::byte(code << 4);
}

int64_t line_bytes(DType type, int64_t numbers) {
  return static_cast<int64_t>(narrow_line_bytes(type, static_cast<size_t>(numbers)));
}
uint16_t* scales_of(DType type, std::byte* block, int64_t lines, int64_t numbers) {
  return reinterpret_cast<uint16_t*>(block + lines * line_bytes(type, numbers));
}

}  // namespace

NarrowBlock narrow_block(DType type, const std::byte* block, int64_t lines, int64_t numbers) {
  return {type, block, scales_of(type, const_cast<std::byte*>(block), lines, numbers)};
}

void store_keys(DType type, const float* rows, int64_t stride, int64_t n, int64_t first, int64_t dim, std::byte* block) {
  const int64_t bytes = line_bytes(type, kLines);
  if (type == DType::f16) {
    // One key is a number in each of `dim` lines, none of which is in a cache that can be written at once.
    for (int64_t c = 0; c < dim; ++c) __builtin_prefetch(block + c * bytes + first * 2, 1);
    for (int64_t c = 0; c < dim; ++c) {
      auto* line = reinterpret_cast<uint16_t*>(block + c * bytes) + first;
      for (int64_t j = 0; j < n; ++j) line[j] = f32_to_f16(rows[j * stride + c]);
    }
    return;
  }
  uint16_t* const scales = scales_of(type, block, dim, kLines);
  uint8_t codes[kBlock][kBlock];
  for (int64_t begin = 0; begin < n; begin += kGroup) {  // a few keys at a time, so that a line is written in stretches
    const int64_t keys = std::min(kGroup, n - begin);
    for (int64_t c = 0; c < dim; c += kGroup) {
      const int64_t components = std::min(kGroup, dim - c);
      for (int64_t j = 0; j < keys; ++j)
        scales[c / kGroup * kLines + first + begin + j] = encode(type, rows + (begin + j) * stride + c, components, codes[j]);
      for (int64_t i = 0; i < components; ++i)
        for (int64_t j = 0; j < keys; ++j) put(type, block + (c + i) * bytes, first + begin + j, codes[j][i]);
    }
  }
}

void store_values(DType type, const float* rows, int64_t stride, int64_t n, int64_t first, int64_t dim, std::byte* block) {
  const int64_t bytes = line_bytes(type, dim);
  uint16_t* const scales = scales_of(type, block, kLines, dim);
  for (int64_t j = 0; j < n; ++j) {
    const float* row = rows + j * stride;
    std::byte* const line = block + (first + j) * bytes;
    if (type == DType::f16) {
      std::transform(row, row + dim, reinterpret_cast<uint16_t*>(line), f32_to_f16);
      continue;
    }
    for (int64_t c = 0; c < dim; c += kGroup) {
      uint8_t codes[kBlock];
      scales[c / kGroup * kLines + first + j] = encode(type, row + c, std::min(kGroup, dim - c), codes);
      for (int64_t i = 0; i < kGroup; ++i) put(type, line, c + i, codes[i]);
    }
  }
}

void widen_keys(DType type, const std::byte* block, int64_t n, int64_t dim, float* keys) {
  const NarrowBlock narrow = narrow_block(type, block, dim, kLines);
  for (int64_t c = 0; c < dim; ++c)
    for (int64_t j = 0; j < n; ++j) keys[c * kLines + j] = narrow_key(narrow, static_cast<size_t>(c), static_cast<size_t>(j));
}

void widen_values(DType type, const std::byte* block, int64_t n, int64_t dim, float* values) {
  const NarrowBlock narrow = narrow_block(type, block, kLines, dim);
  for (int64_t j = 0; j < n; ++j)
    for (int64_t c = 0; c < dim; ++c)
      values[j * dim + c] = narrow_value(narrow, static_cast<size_t>(dim), static_cast<size_t>(c), static_cast<size_t>(j));
}

}  // namespace vitrine
