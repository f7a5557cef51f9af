#pragma once
// Vectors of eight or four magnitudes with signs, as the types IQ1_*, IQ2_* and IQ3_* hold them.
#include "base/blocks/codebooks.h"
#include "base/blocks/parts.h"

namespace vitrine {
namespace {

/// The vectors of a codebook, spelled out when the program is compiled.
template <int kCount, int kWidth>
struct Codebook {
  int8_t vectors[kCount][kWidth];
  template <int kMagnitudes>
  constexpr Codebook(const uint16_t (&packed)[kCount], const int8_t (&magnitudes)[kMagnitudes]) : vectors() {
    constexpr int kBits = kMagnitudes <= 4 ? 2 : 3;
    for (int i = 0; i < kCount; ++i)
      for (int j = 0; j < kWidth; ++j) vectors[i][j] = magnitudes[packed[i] >> (kBits * j) & ((1 << kBits) - 1)];
  }
};
constexpr int8_t kTwoBitMagnitudes[3] = {8, 25, 43};

/// The signs of eight values in seven bits: bit i is set where value i is negative, and the number of negative values is even.
inline int even_signs(uint32_t bits) {
  bits &= 127;
  return static_cast<int>(bits | static_cast<uint32_t>(__builtin_parity(bits)) << 7);
}

/// -1 for each bit of a byte that is set.
struct SignMasks {
  int8_t masks[256][8];
  constexpr SignMasks() : masks() {
    for (int bits = 0; bits < 256; ++bits)
      for (int i = 0; i < 8; ++i) masks[bits][i] = static_cast<int8_t>(-(bits >> i & 1));
  }
};
constexpr SignMasks kSignMasks;

/// A vector, negative where `signs` has a bit.
template <int kWidth>
inline void signed_vector(const int8_t (&vector)[kWidth], int signs, int8_t* q) {
  typedef int8_t Bytes __attribute__((__vector_size__(kWidth)));
  Bytes v, mask;
  memcpy(&v, vector, kWidth);
  memcpy(&mask, kSignMasks.masks[signs & 255], kWidth);
  v = (v ^ mask) - mask;
  memcpy(q, &v, kWidth);
}

/// (d (0.5 + s)) / 4 for one of the two 4-bit scales in a byte.
inline float quarter_scale(float d, int s) { return d * (0.5f + static_cast<float>(s)) * 0.25f; }

}  // namespace
}  // namespace vitrine
