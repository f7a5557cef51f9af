#pragma once
// Q2_K: 16 groups of 16 values of 2 bits, each with a scale and a minimum of 4 bits: y = (d s) q - (dmin m).
// 16 bytes of s (low nibble) and m (high), 64 bytes of values, f16 d, f16 dmin. Byte l of a half's 32 holds the values l, 32 + l,
// 64 + l and 96 + l of its 128, lowest bits first.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ2_K {
  static constexpr size_t kElements = 256, kBytes = 84, kGroup = 16;
  static constexpr bool kHasMinimum = true;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float* minimum) {
    const float d = half_at(block + 80), dmin = half_at(block + 82);
    for (int group = 0; group < 16; ++group) {
      scale[group] = d * static_cast<float>(block[group] & 15);
      minimum[group] = dmin * static_cast<float>(block[group] >> 4);
    }
    each_index<8>([&](auto part) {  // two groups
      const uint8_t* from = block + 16 + part.value / 4 * 32;
      for (int i = 0; i < 32; ++i) q[part.value * 32 + i] = static_cast<int8_t>(from[i] >> part.value % 4 * 2 & 3);
    });
  }
};

}  // namespace
}  // namespace vitrine
