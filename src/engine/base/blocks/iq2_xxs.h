#pragma once
// IQ2_XXS: 8 groups of 32 values, four vectors of eight each: y = (d (0.5 + s) / 4) v.
// f16 d; for each group four bytes that choose the vectors and a u32: four times seven bits of signs, s in the upper four.
#include "base/blocks/codebook.h"

namespace vitrine {
namespace {

constexpr Codebook<256, 8> kIq2xxsVectors(kIq2xxs, kTwoBitMagnitudes);

struct BlockIQ2_XXS {
  static constexpr size_t kElements = 256, kBytes = 66, kGroup = 32;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    const float d = half_at(block);
    for (int group = 0; group < 8; ++group) {
      const uint8_t* chosen = block + 2 + group * 8;
      uint32_t signs;
      memcpy(&signs, chosen + 4, 4);
      scale[group] = quarter_scale(d, static_cast<int>(signs >> 28));
      for (int v = 0; v < 4; ++v, q += 8) signed_vector(kIq2xxsVectors.vectors[chosen[v]], even_signs(signs >> (7 * v)), q);
    }
  }
};

}  // namespace
}  // namespace vitrine
