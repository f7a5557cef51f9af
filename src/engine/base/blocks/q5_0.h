#pragma once
// Q5_0: 32 values of 5 bits with a scale in f16: y = d (q - 16).
// f16 d, u32 of the fifth bits, 16 bytes of two nibbles.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ5_0 {
  static constexpr size_t kElements = 32, kBytes = 22, kGroup = 32;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    uint32_t high;
    memcpy(&high, block + 2, 4);
    scale[0] = half_at(block);
    each_nibble(block + 6, q, [high](int value, int i) { return (value | static_cast<int>(high >> i & 1) << 4) - 16; });
  }
};

}  // namespace
}  // namespace vitrine
