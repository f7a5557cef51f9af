#pragma once
// IQ3_S: 8 groups of 32 values, eight vectors of four each: y = (d (1 + 2 s)) v.
// f16 d; 64 bytes: the low eight bits that choose a vector; 8 bytes: the ninth, one byte a group; 32 bytes of signs; 4 bytes of
// s, two in a byte.
#include "base/blocks/codebook.h"

namespace vitrine {
namespace {

constexpr int8_t kIq3sMagnitudes[8] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr Codebook<512, 4> kIq3sVectors(kIq3s, kIq3sMagnitudes);

struct BlockIQ3_S {
  static constexpr size_t kElements = 256, kBytes = 110, kGroup = 32;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    const float d = half_at(block);
    for (int group = 0; group < 8; ++group)
      scale[group] = d * static_cast<float>(1 + 2 * (block[106 + group / 2] >> (group % 2 * 4) & 15));
    for (int v = 0; v < 64; ++v, q += 4) {
      const int chosen = block[2 + v] | (block[66 + v / 8] >> (v % 8) & 1) << 8;
      signed_vector(kIq3sVectors.vectors[chosen], block[74 + v / 2] >> (v % 2 * 4), q);
    }
  }
};

}  // namespace
}  // namespace vitrine
