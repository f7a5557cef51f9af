#pragma once
// Q5_1: 32 values of 5 bits with a scale and a minimum in f16: y = d q + m.
// f16 d, f16 m, u32 of the fifth bits, 16 bytes of two nibbles.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ5_1 {
  static constexpr size_t kElements = 32, kBytes = 24, kGroup = 32;
  static constexpr bool kHasMinimum = true;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float* minimum) {
    uint32_t high;
    memcpy(&high, block + 4, 4);
    scale[0] = half_at(block);
    minimum[0] = -half_at(block + 2);
    each_nibble(block + 8, q, [high](int value, int i) { return value | static_cast<int>(high >> i & 1) << 4; });
  }
};

}  // namespace
}  // namespace vitrine
