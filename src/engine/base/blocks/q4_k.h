#pragma once
// Q4_K: 8 groups of 32 values of 4 bits, each with a scale and a minimum of 6 bits: y = (d s) q - (dmin m).
// f16 d, f16 dmin, 12 bytes of scales and minima (SixBitPairs), 128 bytes: 32 bytes hold two groups, low nibbles and high.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ4_K {
  static constexpr size_t kElements = 256, kBytes = 144, kGroup = 32;
  static constexpr bool kHasMinimum = true;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float* minimum) {
    SixBitPairs(block + 4).fill(half_at(block), half_at(block + 2), scale, minimum);
    for (int pair = 0; pair < 4; ++pair) {
      const uint8_t* from = block + 16 + pair * 32;
      for (int i = 0; i < 32; ++i) q[pair * 64 + i] = static_cast<int8_t>(from[i] & 15);
      for (int i = 0; i < 32; ++i) q[pair * 64 + 32 + i] = static_cast<int8_t>(from[i] >> 4);
    }
  }
};

}  // namespace
}  // namespace vitrine
