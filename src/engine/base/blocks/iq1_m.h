#pragma once
// IQ1_M: 16 groups of 16 values, two vectors of eight each: y = (d (2 s + 1)) (v ± 1/8).
// 32 bytes: the low eight bits that choose a vector; 16 bytes: its upper three bits and the sign of its shift, two vectors in a
// byte; four u16: four times s in three bits, and four bits of the f16 d, lowest first.
#include "base/blocks/iq1_s.h"

namespace vitrine {
namespace {

struct BlockIQ1_M {
  static constexpr size_t kElements = 256, kBytes = 56, kGroup = 16;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    const uint8_t* tail = block + 48;
    const uint8_t half[2] = {static_cast<uint8_t>(tail[1] >> 4 | (tail[3] & 0xf0)),
                             static_cast<uint8_t>(tail[5] >> 4 | (tail[7] & 0xf0))};
    const float d = half_at(half) * 0.125f;
    for (int group = 0; group < 16; ++group) {
      uint16_t scales;
      memcpy(&scales, tail + group / 4 * 2, 2);
      scale[group] = d * static_cast<float>(2 * (scales >> (group % 4 * 3) & 7) + 1);
    }
    for (int v = 0; v < 32; ++v, q += 8) {
      const int rest = block[32 + v / 2] >> (v % 2 * 4);
      shifted_vector(block[v] | (rest & 7) << 8, (rest & 8) != 0, q);
    }
  }
};

}  // namespace
}  // namespace vitrine
