#pragma once
// IQ4_NL: 32 values of 4 bits that stand for 16 unevenly spaced ones (kNonLinear), with a scale in f16.
// f16 d, 16 bytes of two nibbles.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockIQ4_NL {
  static constexpr size_t kElements = 32, kBytes = 18;
  static void decode(const uint8_t* block, float* y) {
    const float d = half_at(block);
    each_nibble(block + 2, y, [d](int q, int) { return d * static_cast<float>(kNonLinear[q]); });
  }
};

}  // namespace
}  // namespace vitrine
