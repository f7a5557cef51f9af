#pragma once
// MXFP4 (OCP Microscaling Formats 1.0): 32 values in e2m1 with a power of two as scale.
// u8 e: the scale is 2^(e - 127), halved because the table holds doubled values; 16 bytes of two nibbles.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockMXFP4 {
  static constexpr size_t kElements = 32, kBytes = 17, kGroup = 32;
  static constexpr bool kHasMinimum = false;
  static constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  static float scale_of(uint32_t e) {
    const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;  // 2^(e - 128), subnormal below 2^-126
    float d;
    memcpy(&d, &bits, 4);
    return d;
  }
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    scale[0] = scale_of(block[0]);
    look_up_nibbles(block + 1, kDoubled, q);
  }
};

}  // namespace
}  // namespace vitrine
