#pragma once
// IQ4_XS: 8 groups of 32 values as in IQ4_NL, each with a scale of 6 bits: y = (d (s - 32)) kNonLinear[q].
// f16 d, u16 of the scales' upper two bits, 4 bytes of their low nibbles, 128 bytes: 16 for each group.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockIQ4_XS {
  static constexpr size_t kElements = 256, kBytes = 136, kGroup = 32;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    const float d = half_at(block);
    uint16_t high;
    memcpy(&high, block + 2, 2);
    for (int group = 0; group < 8; ++group) {
      const int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
      scale[group] = d * static_cast<float>((low | (high >> (2 * group) & 3) << 4) - 32);
      look_up_nibbles(block + 8 + group * 16, kNonLinear, q + group * 32);
    }
  }
};

}  // namespace
}  // namespace vitrine
