#pragma once
// IQ1_M: 16 groups of 16 values, two vectors of eight each: y = (d (2 s + 1)) (v ± 1/8).
// 32 bytes: the low eight bits that choose a vector; 16 bytes: its upper three bits and the sign of its shift, two vectors in a
// byte; four u16: four times s in three bits, and four bits of the f16 d, lowest first.
#include "base/blocks/iq1_s.h"

namespace vitrine {
namespace {

struct BlockIQ1_M {
  static constexpr size_t kElements = 256, kBytes = 56;
  static void decode(const uint8_t* block, float* y) {
    const uint8_t* tail = block + 48;
    const uint8_t half[2] = {static_cast<uint8_t>(tail[1] >> 4 | (tail[3] & 0xf0)),
                             static_cast<uint8_t>(tail[5] >> 4 | (tail[7] & 0xf0))};
    const float d = half_at(half);
    for (int v = 0; v < 32; ++v, y += 8) {
      const int group = v / 2;
      uint16_t scales;
      memcpy(&scales, tail + group / 4 * 2, 2);
      const float scale = d * static_cast<float>(2 * (scales >> (group % 4 * 3) & 7) + 1);
      const int rest = block[32 + v / 2] >> (v % 2 * 4);
      shifted_vector(scale, block[v] | (rest & 7) << 8, (rest & 8) != 0, y);
    }
  }
};

}  // namespace
}  // namespace vitrine
