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
    fill_groups(half_at(block + 64), 16, scale);
    for (int part = 0; part < 8; ++part) {
      const uint8_t* from = block + part / 4 * 32;
      const int shift = part % 4 * 2;
      for (int i = 0; i < 32; ++i) q[part * 32 + i] = static_cast<int8_t>((from[i] >> shift & 3) - 1);
    }
  }
};

}  // namespace
}  // namespace vitrine
