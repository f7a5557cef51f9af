#pragma once
// IQ2_XXS: 8 groups of 32 values, four vectors of eight each: y = (d (0.5 + s) / 4) v.
// f16 d; for each group four bytes that choose the vectors and a u32: four times seven bits of signs, s in the upper four.
#include "base/blocks/codebook.h"

namespace vitrine {
namespace {

constexpr Codebook<256, 8> kIq2xxsVectors(kIq2xxs, kTwoBitMagnitudes);

struct BlockIQ2_XXS {
  static constexpr size_t kElements = 256, kBytes = 66;
  static void decode(const uint8_t* block, float* y) {
    const float d = half_at(block);
    for (int group = 0; group < 8; ++group) {
      const uint8_t* q = block + 2 + group * 8;
      uint32_t signs;
      memcpy(&signs, q + 4, 4);
      const float scale = quarter_scale(d, static_cast<int>(signs >> 28));
      for (int v = 0; v < 4; ++v, y += 8) signed_vector(scale, kIq2xxsVectors.vectors[q[v]], even_signs(signs >> (7 * v)), y);
    }
  }
};

}  // namespace
}  // namespace vitrine
