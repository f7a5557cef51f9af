#pragma once
// IQ2_S: 16 groups of 16 values, two vectors of eight each: y = (d (0.5 + s) / 4) v.
// f16 d; 32 bytes: the low eight bits that choose a vector; 32 bytes of signs; 8 bytes: the upper two bits, four in a byte;
// 8 bytes of s, two in a byte.
#include "base/blocks/codebook.h"

namespace vitrine {
namespace {

constexpr Codebook<1024, 8> kIq2sVectors(kIq2s, kTwoBitMagnitudes);

struct BlockIQ2_S {
  static constexpr size_t kElements = 256, kBytes = 82, kGroup = 16;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    const float d = half_at(block);
    for (int group = 0; group < 16; ++group) scale[group] = quarter_scale(d, block[74 + group / 2] >> (group % 2 * 4) & 15);
    for (int v = 0; v < 32; ++v, q += 8) {
      const int chosen = block[2 + v] | (block[66 + v / 4] >> (v % 4 * 2) & 3) << 8;
      signed_vector(kIq2sVectors.vectors[chosen], block[34 + v], q);
    }
  }
};

}  // namespace
}  // namespace vitrine
