#pragma once
// Q4_K: 8 groups of 32 values of 4 bits, each with a scale and a minimum of 6 bits: y = (d s) q - (dmin m).
// f16 d, f16 dmin, 12 bytes of scales and minima (SixBitPairs), 128 bytes: 32 bytes hold two groups, low nibbles and high.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ4_K {
  static constexpr size_t kElements = 256, kBytes = 144;
  static void decode(const uint8_t* block, float* y) {
    const float d = half_at(block), dmin = half_at(block + 2);
    const SixBitPairs pairs(block + 4);
    for (int group = 0; group < 8; ++group) {
      const float scale = d * static_cast<float>(pairs.scale[group]), minimum = dmin * static_cast<float>(pairs.minimum[group]);
      const uint8_t* q = block + 16 + group / 2 * 32;
      const int shift = group % 2 * 4;
      for (int i = 0; i < 32; ++i) y[group * 32 + i] = scale * static_cast<float>(q[i] >> shift & 15) - minimum;
    }
  }
};

}  // namespace
}  // namespace vitrine
