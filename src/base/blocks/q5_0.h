#pragma once
// Q5_0: 32 values of 5 bits with a scale in f16: y = d (q - 16).
// f16 d, u32 of the fifth bits, 16 bytes of two nibbles.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ5_0 {
  static constexpr size_t kElements = 32, kBytes = 22;
  static void decode(const uint8_t* block, float* y) {
    const float d = half_at(block);
    uint32_t high;
    memcpy(&high, block + 2, 4);
    each_nibble(block + 6, y,
                [d, high](int q, int i) { return d * static_cast<float>((q | static_cast<int>(high >> i & 1) << 4) - 16); });
  }
};

}  // namespace
}  // namespace vitrine
