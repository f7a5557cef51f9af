#pragma once
// IQ2_XS: 16 groups of 16 values, two vectors of eight each: y = (d (0.5 + s) / 4) v.
// f16 d; 32 u16, one a vector: nine bits that choose it and seven of signs; 8 bytes of s, two in a byte.
#include "base/blocks/codebook.h"

namespace vitrine {
namespace {

constexpr Codebook<512, 8> kIq2xsVectors(kIq2xs, kTwoBitMagnitudes);

struct BlockIQ2_XS {
  static constexpr size_t kElements = 256, kBytes = 74;
  static void decode(const uint8_t* block, float* y) {
    const float d = half_at(block);
    for (int v = 0; v < 32; ++v, y += 8) {
      uint16_t q;
      memcpy(&q, block + 2 + v * 2, 2);
      const float scale = quarter_scale(d, block[66 + v / 4] >> (v / 2 % 2 * 4) & 15);
      signed_vector(scale, kIq2xsVectors.vectors[q & 511], even_signs(q >> 9), y);
    }
  }
};

}  // namespace
}  // namespace vitrine
