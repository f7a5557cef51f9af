#pragma once
// Q4_1: 32 values of 4 bits with a scale and a minimum in f16: y = d q + m.
// f16 d, f16 m, 16 bytes of two nibbles.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ4_1 {
  static constexpr size_t kElements = 32, kBytes = 20;
  static void decode(const uint8_t* block, float* y) {
    const float d = half_at(block), m = half_at(block + 2);
    each_nibble(block + 4, y, [d, m](int q, int) { return d * static_cast<float>(q) + m; });
  }
};

}  // namespace
}  // namespace vitrine
