#pragma once
// What the block types share. These headers are compiled into every instruction set's kernels with its own flags, so everything
// lies in the anonymous namespace and calls no inline function from elsewhere (kernels/simd/vec.h says why).
//
// A type is a struct with kElements, kBytes and integers(block, q, scale, minimum): every kGroup values, 16 or 32, are
// scale q - minimum, with q in int8. scale and minimum have an entry for each 16; types without kHasMinimum write no minimum, and
// q of those with one is never negative. decode_integers() makes the values of them in the order of the operations that define
// the types: scale times sub-scale first, then times the integer, then minus the minimum, each rounded to f32.
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vitrine {
namespace {

/// The f16 at p as f32.
inline float half_at(const uint8_t* p) {
  uint16_t bits;
  memcpy(&bits, p, 2);
#ifdef __F16C__
  using Halves = short __attribute__((__vector_size__(16)));
  return __builtin_ia32_vcvtph2ps(Halves{static_cast<short>(bits)})[0];
#else
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, mantissa = bits & 0x3ffu;
  uint32_t wide = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | (mantissa << 13);
  float value;
  if (exponent == 0) {  // a subnormal: mantissa * 2^-24, exactly
    value = static_cast<float>(mantissa) * 0x1p-24f;
    memcpy(&wide, &value, 4);
    wide |= sign;
  }
  memcpy(&value, &wide, 4);
  return value;
#endif
}

/// Sixteen bytes of two nibbles each: the low ones become q[0 .. 16), the high ones q[16 .. 32).
template <class Value>
inline void each_nibble(const uint8_t* from, int8_t* q, Value value) {
  for (int i = 0; i < 16; ++i) q[i] = static_cast<int8_t>(value(from[i] & 15, i));
  for (int i = 0; i < 16; ++i) q[i + 16] = static_cast<int8_t>(value(from[i] >> 4, i + 16));
}

inline void fill_groups(float value, int groups, float* to) {
  for (int i = 0; i < groups; ++i) to[i] = value;
}

/// The kElements values of a block.
template <class Block>
inline void decode_integers(const uint8_t* block, float* y) {
  int8_t q[Block::kElements];
  float scale[Block::kElements / 16], minimum[Block::kElements / 16];
  Block::integers(block, q, scale, minimum);
  for (size_t group = 0; group < Block::kElements / 16; ++group)
    for (size_t i = group * 16; i < group * 16 + 16; ++i) {
      const float value = scale[group] * static_cast<float>(q[i]);
      if constexpr (Block::kHasMinimum) {
        y[i] = value - minimum[group];
      } else {
        y[i] = value;
      }
    }
}

/// The eight 6-bit scales and minima of Q4_K and Q5_K in 12 bytes: four of each with six bits in a byte, then four whose low
/// four bits share a byte and whose high two are those that the first four left.
struct SixBitPairs {
  uint8_t scale[8], minimum[8];
  explicit SixBitPairs(const uint8_t* p) {
    for (int i = 0; i < 4; ++i) {
      scale[i] = p[i] & 63;
      minimum[i] = p[i + 4] & 63;
      scale[i + 4] = static_cast<uint8_t>((p[i + 8] & 15) | (p[i] >> 6 << 4));
      minimum[i + 4] = static_cast<uint8_t>((p[i + 8] >> 4) | (p[i + 4] >> 6 << 4));
    }
  }
  /// Of each 16 values: two of them share a pair.
  void fill(float d, float dmin, float* scales, float* minima) const {
    for (int i = 0; i < 16; ++i) {
      scales[i] = d * static_cast<float>(scale[i / 2]);
      minima[i] = dmin * static_cast<float>(minimum[i / 2]);
    }
  }
};

/// The 16 values of a nibble in IQ4_NL and IQ4_XS.
constexpr int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace
}  // namespace vitrine
