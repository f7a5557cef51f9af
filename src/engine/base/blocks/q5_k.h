#pragma once
// Q5_K: 8 groups of 32 values of 5 bits, each with a scale and a minimum of 6 bits: y = (d s) q - (dmin m).
// f16 d, f16 dmin, 12 bytes of scales and minima (SixBitPairs), 32 bytes of the fifth bits (bit g of byte l is that of value
// 32 g + l), 128 bytes as in Q4_K.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ5_K {
  static constexpr size_t kElements = 256, kBytes = 176, kGroup = 32;
  static constexpr bool kHasMinimum = true;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float* minimum) {
    SixBitPairs(block + 4).fill(half_at(block), half_at(block + 2), scale, minimum);
    const uint8_t* fifth = block + 16;
    each_index<8>([&](auto group) {
      const uint8_t* from = block + 48 + group.value / 2 * 32;
      for (int i = 0; i < 32; ++i)
        q[group.value * 32 + i] = static_cast<int8_t>((from[i] >> group.value % 2 * 4 & 15) | (fifth[i] >> group.value & 1) << 4);
    });
  }
};

}  // namespace
}  // namespace vitrine
