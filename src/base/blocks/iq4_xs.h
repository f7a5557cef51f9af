#pragma once
// IQ4_XS: 8 groups of 32 values as in IQ4_NL, each with a scale of 6 bits: y = (d (s - 32)) kNonLinear[q].
// f16 d, u16 of the scales' upper two bits, 4 bytes of their low nibbles, 128 bytes: 16 for each group.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockIQ4_XS {
  static constexpr size_t kElements = 256, kBytes = 136;
  static void decode(const uint8_t* block, float* y) {
    const float d = half_at(block);
    uint16_t high;
    memcpy(&high, block + 2, 2);
    for (int group = 0; group < 8; ++group) {
      const int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
      const float scale = d * static_cast<float>((low | (high >> (2 * group) & 3) << 4) - 32);
      each_nibble(block + 8 + group * 16, y + group * 32,
                  [scale](int q, int) { return scale * static_cast<float>(kNonLinear[q]); });
    }
  }
};

}  // namespace
}  // namespace vitrine
