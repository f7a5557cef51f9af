#pragma once
// IQ2_XS: 16 groups of 16 values, two vectors of eight each: y = (d (0.5 + s) / 4) v.
// f16 d; 32 u16, one a vector: nine bits that choose it and seven of signs; 8 bytes of s, two in a byte.
#include "base/blocks/codebook.h"

namespace vitrine {
namespace {

constexpr Codebook<512, 8> kIq2xsVectors(kIq2xs, kTwoBitMagnitudes);

struct BlockIQ2_XS {
  static constexpr size_t kElements = 256, kBytes = 74, kGroup = 16;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    const float d = half_at(block);
    for (int group = 0; group < 16; ++group) scale[group] = quarter_scale(d, block[66 + group / 2] >> (group % 2 * 4) & 15);
    for (int v = 0; v < 32; ++v, q += 8) {
      uint16_t chosen;
      memcpy(&chosen, block + 2 + v * 2, 2);
      signed_vector(kIq2xsVectors.vectors[chosen & 511], even_signs(chosen >> 9), q);
    }
  }
};

}  // namespace
}  // namespace vitrine
