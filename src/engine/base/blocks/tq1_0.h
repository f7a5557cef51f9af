#pragma once
// TQ1_0: 256 values of -1, 0 and 1 with a scale in f16: y = (t - 1) d. Five ternary digits t in a byte, the last 16 values four
// in a byte. A byte holds 256/243 of the number that its digits spell, rounded up: times 3^n modulo 256 its next digit is the
// upper part of three times the byte.
// 48 bytes (32, then 16) of five, 4 bytes of four, f16 d.
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

struct BlockTQ1_0 {
  static constexpr size_t kElements = 256, kBytes = 54, kGroup = 32;
  static constexpr bool kHasMinimum = false;
  static int8_t* digits(const uint8_t* from, int bytes, int count, int8_t* q) {
    int power = 1;
    for (int n = 0; n < count; ++n, power *= 3)
      for (int i = 0; i < bytes; ++i) {
        const int digit = static_cast<uint8_t>(from[i] * power) * 3 >> 8;
        *q++ = static_cast<int8_t>(digit - 1);
      }
    return q;
  }
  static void integers(const uint8_t* block, int8_t* q, float* scale, float*) {
    for (int group = 0; group < 8; ++group) scale[group] = half_at(block + 52);
    q = digits(block, 32, 5, q);
    q = digits(block + 32, 16, 5, q);
    digits(block + 48, 4, 4, q);
  }
};

}  // namespace
}  // namespace vitrine
