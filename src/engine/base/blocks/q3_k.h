#pragma once
// Q3_K: 16 groups of 16 values of 3 bits, each with a scale of 6 bits: y = (d (s - 32)) (q - 4).
// 32 bytes of the third bits (bit 4 n + j of byte l is that of value 128 n + 32 j + l), 64 bytes of the low two (as in Q2_K),
// 12 bytes of scales (low nibbles of 8, high nibbles of 8 more, then their upper two bits), f16 d.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ3_K {
  static constexpr size_t kElements = 256, kBytes = 110, kGroup = 16;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    const uint8_t* scales = block + 96;
    const float d = half_at(block + 108);
    for (int group = 0; group < 16; ++group) {
      const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
      const int high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
      scale[group] = d * static_cast<float>((low | high << 4) - 32);
    }
    each_index<8>([&](auto part) {  // two groups
      const uint8_t *from = block + 32 + part.value / 4 * 32, *third = block;
      for (int i = 0; i < 32; ++i)
        q[part.value * 32 + i] = static_cast<int8_t>((from[i] >> part.value % 4 * 2 & 3) + (third[i] >> part.value & 1) * 4 - 4);
    });
  }
};

}  // namespace
}  // namespace vitrine
