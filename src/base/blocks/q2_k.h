#pragma once
// Q2_K: 16 groups of 16 values of 2 bits, each with a scale and a minimum of 4 bits: y = (d s) q - (dmin m).
// 16 bytes of s (low nibble) and m (high), 64 bytes of values, f16 d, f16 dmin. Byte l of a half's 32 holds the values l, 32 + l,
// 64 + l and 96 + l of its 128, lowest bits first.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockQ2_K {
  static constexpr size_t kElements = 256, kBytes = 84;
  static void decode(const uint8_t* block, float* y) {
    const uint8_t* q = block + 16;
    const float d = half_at(block + 80), dmin = half_at(block + 82);
    for (int group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(block[group] & 15), minimum = dmin * static_cast<float>(block[group] >> 4);
      const uint8_t* from = q + group / 8 * 32 + group % 2 * 16;
      const int shift = group % 8 / 2 * 2;
      for (int i = 0; i < 16; ++i) y[group * 16 + i] = scale * static_cast<float>(from[i] >> shift & 3) - minimum;
    }
  }
};

}  // namespace
}  // namespace vitrine
