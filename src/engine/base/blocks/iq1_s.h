#pragma once
// IQ1_S: 8 groups of 32 values, four vectors of eight each: y = (d (2 s + 1)) (v ± 1/8).
// f16 d; 32 bytes: the low eight bits that choose a vector; for each group a u16: four times the upper three bits, s in three
// more, and the sign of the shift.
#include "base/blocks/codebook.h"

namespace vitrine {
namespace {

constexpr int8_t kIq1Magnitudes[3] = {-1, 0, 1};
constexpr Codebook<2048, 8> kIq1Vectors(kIq1, kIq1Magnitudes);

/// Eight times what a vector of -1, 0 and 1 and its shift of an eighth up or down add up to.
inline void shifted_vector(int chosen, bool down, int8_t* q) {
  using Bytes = int8_t __attribute__((__vector_size__(8)));
  Bytes v;
  memcpy(&v, kIq1Vectors.vectors[chosen], 8);
  const int8_t shift = down ? -1 : 1;
  v <<= 3;
  v += shift;
  memcpy(q, &v, 8);
}

struct BlockIQ1_S {
  static constexpr size_t kElements = 256, kBytes = 50, kGroup = 32;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    const float d = half_at(block) * 0.125f;
    for (int group = 0; group < 8; ++group) {
      uint16_t rest;
      memcpy(&rest, block + 34 + group * 2, 2);
      scale[group] = d * static_cast<float>(2 * (rest >> 12 & 7) + 1);
      for (int v = 0; v < 4; ++v, q += 8)
        shifted_vector(block[2 + group * 4 + v] | (rest >> (3 * v) & 7) << 8, (rest & 0x8000) != 0, q);
    }
  }
};

}  // namespace
}  // namespace vitrine
