#pragma once
// Q6_K: 16 groups of 16 values of 6 bits, each with a scale of 8 bits: y = (d s) (q - 32).
// 128 bytes of the low nibbles, 64 of the upper two bits, 16 scales as int8, f16 d. In each half of 128 values: byte l of 64
// holds the nibbles of values l and 64 + l; byte l of 32 the upper bits of l, 32 + l, 64 + l and 96 + l.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ6_K {
  static constexpr size_t kElements = 256, kBytes = 210, kGroup = 16;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    const float d = half_at(block + 208);
    for (int group = 0; group < 16; ++group) scale[group] = d * static_cast<float>(static_cast<int8_t>(block[192 + group]));
    each_index<8>([&](auto part) {  // two groups
      const uint8_t *low = block + part.value / 4 * 64 + part.value % 2 * 32, *high = block + 128 + part.value / 4 * 32;
      for (int i = 0; i < 32; ++i)
        q[part.value * 32 + i] =
            static_cast<int8_t>(((low[i] >> part.value % 4 / 2 * 4 & 15) | (high[i] >> part.value % 4 * 2 & 3) << 4) - 32);
    });
  }
};

}  // namespace
}  // namespace vitrine
