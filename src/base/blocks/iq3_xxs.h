#pragma once
// IQ3_XXS: 8 groups of 32 values, eight vectors of four each: y = (d (0.5 + s) / 2) v.
// f16 d; 64 bytes that choose the vectors; for each group a u32: four times seven bits of signs, s in the upper four.
#include "base/blocks/codebook.h"

namespace vitrine {
namespace {

constexpr int8_t kIq3xxsMagnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr Codebook<256, 4> kIq3xxsVectors(kIq3xxs, kIq3xxsMagnitudes);

struct BlockIQ3_XXS {
  static constexpr size_t kElements = 256, kBytes = 98;
  static void decode(const uint8_t* block, float* y) {
    const float d = half_at(block);
    const uint8_t* q = block + 2;
    for (int group = 0; group < 8; ++group) {
      uint32_t signs;
      memcpy(&signs, block + 66 + group * 4, 4);
      const float scale = d * (0.5f + static_cast<float>(signs >> 28)) * 0.5f;
      for (int pair = 0; pair < 4; ++pair, q += 2, y += 8) {
        const int negative = even_signs(signs >> (7 * pair));
        signed_vector(scale, kIq3xxsVectors.vectors[q[0]], negative, y);
        signed_vector(scale, kIq3xxsVectors.vectors[q[1]], negative >> 4, y + 4);
      }
    }
  }
};

}  // namespace
}  // namespace vitrine
