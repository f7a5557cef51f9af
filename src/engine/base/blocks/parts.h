#pragma once
// What the block types share. These headers are compiled into every instruction set's kernels with its own flags, so everything
// lies in the anonymous namespace and calls no inline function from elsewhere (kernels/simd/vec.h says why).
//
// A type is a struct with kElements, kBytes and integers(block, q, scale, minimum): every kGroup values, 16 or 32, are
// scale q - minimum, with q in int8. scale and minimum have an entry for each group; types without kHasMinimum write no minimum,
// and q of those with one is never negative. decode_integers() makes the values of them in the order of the operations that
// define the types: scale times sub-scale first, then times the integer, then minus the minimum, each rounded to f32.
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vitrine {
namespace {

/// The f16 at p as f32.
inline float half_at(const uint8_t* p) {
#if defined(__aarch64__)
  __fp16 half;
  memcpy(&half, p, 2);
  return half;
#elif defined(__F16C__)
  using Halves = short __attribute__((__vector_size__(16)));
  short bits;
  memcpy(&bits, p, 2);
  return __builtin_ia32_vcvtph2ps(Halves{bits})[0];
#else
  uint16_t bits;
  memcpy(&bits, p, 2);
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

/// f(Index<0>()), f(Index<1>()), … f(Index<n - 1>()): a loop whose shifts are constants, so that it becomes vectors.
template <int kValue>
struct Index {
  static constexpr int value = kValue;
};
template <int n, class F>
inline void each_index(F f) {
  if constexpr (n > 1) each_index<n - 1>(f);
  f(Index<n - 1>());
}

/// Sixteen bytes of two nibbles each: what the table has for the low ones becomes q[0 .. 16), for the high ones q[16 .. 32).
inline void look_up_nibbles(const uint8_t* from, const int8_t (&table)[16], int8_t* q) {
#ifdef __SSSE3__
  using Bytes = char __attribute__((__vector_size__(16)));
  using Words = short __attribute__((__vector_size__(16)));
  Bytes both, values;
  memcpy(&both, from, 16);
  memcpy(&values, table, 16);
  const Bytes low = __builtin_ia32_pshufb128(values, both & 15);
  const Bytes high = __builtin_ia32_pshufb128(values, reinterpret_cast<Bytes>(reinterpret_cast<Words>(both) >> 4) & 15);
  memcpy(q, &low, 16);
  memcpy(q + 16, &high, 16);
#else
  each_nibble(from, q, [&table](int value, int) { return table[value]; });
#endif
}

template <class Block>
inline void decode_integers(const uint8_t* block, float* y) {
  constexpr size_t kGroups = Block::kElements / Block::kGroup;
  int8_t q[Block::kElements];
  float scale[kGroups], minimum[kGroups];
  Block::integers(block, q, scale, minimum);
  for (size_t group = 0; group < kGroups; ++group)
    for (size_t i = group * Block::kGroup; i < (group + 1) * Block::kGroup; ++i) {
      const float value = scale[group] * static_cast<float>(q[i]);
      if constexpr (Block::kHasMinimum) {
        y[i] = value - minimum[group];
      } else {
        y[i] = value;
      }
    }
}

/// The kElements values of a block.
template <class Block>
inline void decode_values(const uint8_t* block, float* y) {
  if constexpr (requires { Block::values(block, y); })
    return Block::values(block, y);
  else
    decode_integers<Block>(block, y);
}

/// The eight 6-bit scales and minima of Q4_K and Q5_K in 12 bytes: four of each with six bits in a byte, then four whose low
/// four bits share a byte and whose high two are those that the first four left.
struct SixBitPairs {
  uint8_t scale[8], minimum[8];
  explicit SixBitPairs(const uint8_t* p) {
    uint32_t a, b, c;
    memcpy(&a, p, 4);
    memcpy(&b, p + 4, 4);
    memcpy(&c, p + 8, 4);
    constexpr uint32_t kSix = 0x3f3f3f3f, kFour = 0x0f0f0f0f, kHigh = 0x30303030;  // of each byte
    const uint32_t scales[2] = {a & kSix, (c & kFour) | (a >> 2 & kHigh)};
    const uint32_t minima[2] = {b & kSix, (c >> 4 & kFour) | (b >> 2 & kHigh)};
    memcpy(scale, scales, 8);
    memcpy(minimum, minima, 8);
  }
  void fill(float d, float dmin, float* scales, float* minima) const {
    for (int i = 0; i < 8; ++i) scales[i] = d * static_cast<float>(scale[i]);
    for (int i = 0; i < 8; ++i) minima[i] = dmin * static_cast<float>(minimum[i]);
  }
};

/// The 16 values of a nibble in IQ4_NL and IQ4_XS.
constexpr int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace
}  // namespace vitrine
