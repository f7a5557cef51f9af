#pragma once
// TQ2_0: 256 values of -1, 0 and 1 in 2 bits with a scale in f16: y = (q - 1) d.
// 64 bytes: byte l of 32 holds the values l, 32 + l, 64 + l and 96 + l of 128, lowest bits first; f16 d.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockTQ2_0 {
  static constexpr size_t kElements = 256, kBytes = 66, kGroup = 32;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    for (int group = 0; group < 8; ++group) scale[group] = half_at(block + 64);
    each_index<8>([&](auto part) {
      const uint8_t* from = block + part.value / 4 * 32;
      for (int i = 0; i < 32; ++i) q[part.value * 32 + i] = static_cast<int8_t>((from[i] >> part.value % 4 * 2 & 3) - 1);
    });
  }
};

}  // namespace
}  // namespace vitrine
