#pragma once
// Q5_1: 32 values of 5 bits with a scale and a minimum in f16: y = d q + m.
// f16 d, f16 m, u32 of the fifth bits, 16 bytes of two nibbles.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ5_1 {
  static constexpr size_t kElements = 32, kBytes = 24;
  static void decode(const uint8_t* block, float* y) {
    const float d = half_at(block), m = half_at(block + 2);
    uint32_t high;
    memcpy(&high, block + 4, 4);
    each_nibble(block + 8, y,
                [d, m, high](int q, int i) { return d * static_cast<float>(q | static_cast<int>(high >> i & 1) << 4) + m; });
  }
};

}  // namespace
}  // namespace vitrine
