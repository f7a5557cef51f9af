#pragma once
// Q4_1: 32 values of 4 bits with a scale and a minimum in f16: y = d q + m.
// f16 d, f16 m, 16 bytes of two nibbles.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ4_1 {
  static constexpr size_t kElements = 32, kBytes = 20, kGroup = 32;
  static constexpr bool kHasMinimum = true;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float* minimum) {
    scale[0] = half_at(block);
    minimum[0] = -half_at(block + 2);
    each_nibble(block + 4, q, [](int value, int) { return value; });
  }
};

}  // namespace
}  // namespace vitrine
