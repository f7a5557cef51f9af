#pragma once
// IQ3_XXS: 8 groups of 32 values, eight vectors of four each: y = (d (0.5 + s) / 2) v.
// f16 d; 64 bytes that choose the vectors; for each group a u32: four times seven bits of signs, s in the upper four.
#include "base/blocks/codebook.h"

namespace vitrine {
namespace {

constexpr int8_t kIq3xxsMagnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr Codebook<256, 4> kIq3xxsVectors(kIq3xxs, kIq3xxsMagnitudes);

struct BlockIQ3_XXS {
  static constexpr size_t kElements = 256, kBytes = 98, kGroup = 32;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    const float d = half_at(block);
    const uint8_t* chosen = block + 2;
    for (int group = 0; group < 8; ++group) {
      uint32_t signs;
      memcpy(&signs, block + 66 + group * 4, 4);
      scale[group] = d * (0.5f + static_cast<float>(signs >> 28)) * 0.5f;
      for (int pair = 0; pair < 4; ++pair, chosen += 2, q += 8) {
        const int negative = even_signs(signs >> (7 * pair));
        signed_vector(kIq3xxsVectors.vectors[chosen[0]], negative, q);
        signed_vector(kIq3xxsVectors.vectors[chosen[1]], negative >> 4, q + 4);
      }
    }
  }
};

}  // namespace
}  // namespace vitrine
