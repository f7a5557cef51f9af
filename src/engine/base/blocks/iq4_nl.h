#pragma once
// IQ4_NL: 32 values of 4 bits that stand for 16 unevenly spaced ones (kNonLinear), with a scale in f16.
// f16 d, 16 bytes of two nibbles.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockIQ4_NL {
  static constexpr size_t kElements = 32, kBytes = 18, kGroup = 32;
  static constexpr bool kHasMinimum = false;
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    scale[0] = half_at(block);
    look_up_nibbles(block + 2, kNonLinear, q);
  }
};

}  // namespace
}  // namespace vitrine
