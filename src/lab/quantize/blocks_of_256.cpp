// Blocks of 256 values with groups: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS; and with one scale: TQ1_0, TQ2_0.
#include "quantize/encoders.h"
#include "quantize/groups.h"

namespace vitrine {
namespace {

// 256 values of two bits: byte l of a half's 32 holds the values l, 32 + l, 64 + l and 96 + l of its 128, lowest bits first.
template <class Value>
void store_pairs_of_bits(uint8_t* to, Value value) {
  std::fill(to, to + 64, uint8_t{0});
  for (int i = 0; i < 256; ++i) to[i / 128 * 32 + i % 32] |= static_cast<uint8_t>((value(i) & 3) << (i / 32 % 4 * 2));
}

// 256 values of four bits: 32 bytes hold 64 of them, low nibbles first.
template <class Value>
void store_nibbles(uint8_t* to, Value value) {
  std::fill(to, to + 128, uint8_t{0});
  for (int i = 0; i < 256; ++i) to[i / 64 * 32 + i % 32] |= static_cast<uint8_t>((value(i) & 15) << (i / 32 % 2 * 4));
}

// What SixBitPairs reads.
void store_six_bit_pairs(const uint8_t (&s)[8], const uint8_t (&m)[8], uint8_t* to) {
  for (int i = 0; i < 4; ++i) {
    to[i] = static_cast<uint8_t>(s[i] | s[i + 4] >> 4 << 6);
    to[i + 4] = static_cast<uint8_t>(m[i] | m[i + 4] >> 4 << 6);
    to[i + 8] = static_cast<uint8_t>((s[i + 4] & 15) | (m[i + 4] & 15) << 4);
  }
}

// The scale for which -1, 0 and 1 serve 256 values best. Weights that are ternary keep their one magnitude exactly.
float ternary_scale(const float* x, const float* w) {
  const float largest = as_f16(std::abs(extreme_of(x, 256)));
  const bool exact = std::all_of(x, x + 256, [largest](float v) { return v == 0 || std::abs(v) == largest; });
  return exact ? largest : as_f16(std::abs(best_scale<WholeLevels<-1, 1>>(x, w, 256)));
}

int ternary(float x, float inverse) { return static_cast<int>(WholeLevels<-1, 1>::nearest(x * inverse)) + 1; }

}  // namespace

void encode_q2_k(const float* x, const float* w, uint8_t* block) {
  const AffineGroups<16, 3, 15> fit(x, w);
  for (int g = 0; g < 16; ++g) block[g] = static_cast<uint8_t>(fit.s[g] | fit.m[g] << 4);
  store_pairs_of_bits(block + 16, [&](int i) { return fit.q[i]; });
  store_f16(fit.d, block + 80);
  store_f16(fit.dmin, block + 82);
}

void encode_q3_k(const float* x, const float* w, uint8_t* block) {
  const ScaledGroups<16, WholeLevels<-4, 3>, -32, 31> fit(x, w);
  const auto q = [&](int i) { return static_cast<int>(fit.v[i]) + 4; };
  std::fill(block, block + 32, uint8_t{0});
  for (int i = 0; i < 256; ++i) block[i % 32] |= static_cast<uint8_t>((q(i) >> 2) << (i / 32));
  store_pairs_of_bits(block + 32, q);
  uint8_t* const scales = block + 96;
  std::fill(scales, scales + 12, uint8_t{0});
  for (int g = 0; g < 16; ++g) {
    const int s = fit.s[g] + 32;
    scales[g % 8] |= static_cast<uint8_t>((s & 15) << (g / 8 * 4));
    scales[8 + g % 4] |= static_cast<uint8_t>((s >> 4) << (g / 4 * 2));
  }
  store_f16(fit.d, block + 108);
}

void encode_q4_k(const float* x, const float* w, uint8_t* block) {
  const AffineGroups<32, 15, 63> fit(x, w);
  store_f16(fit.d, block);
  store_f16(fit.dmin, block + 2);
  store_six_bit_pairs(fit.s, fit.m, block + 4);
  store_nibbles(block + 16, [&](int i) { return fit.q[i]; });
}

void encode_q5_k(const float* x, const float* w, uint8_t* block) {
  const AffineGroups<32, 31, 63> fit(x, w);
  store_f16(fit.d, block);
  store_f16(fit.dmin, block + 2);
  store_six_bit_pairs(fit.s, fit.m, block + 4);
  std::fill(block + 16, block + 48, uint8_t{0});
  for (int i = 0; i < 256; ++i) block[16 + i % 32] |= static_cast<uint8_t>((fit.q[i] >> 4) << (i / 32));
  store_nibbles(block + 48, [&](int i) { return fit.q[i]; });
}

void encode_q6_k(const float* x, const float* w, uint8_t* block) {
  const ScaledGroups<16, WholeLevels<-32, 31>, -128, 127> fit(x, w);
  std::fill(block, block + 192, uint8_t{0});
  for (int i = 0; i < 256; ++i) {
    const int q = static_cast<int>(fit.v[i]) + 32, half = i / 128, in = i % 128;
    block[half * 64 + in % 64] |= static_cast<uint8_t>((q & 15) << (in / 64 * 4));
    block[128 + half * 32 + in % 32] |= static_cast<uint8_t>((q >> 4) << (in / 32 * 2));
  }
  for (int g = 0; g < 16; ++g) block[192 + g] = static_cast<uint8_t>(fit.s[g]);
  store_f16(fit.d, block + 208);
}

void encode_iq4_xs(const float* x, const float* w, uint8_t* block) {
  const ScaledGroups<32, NonLinearLevels, -32, 31> fit(x, w);
  store_f16(fit.d, block);
  uint16_t high = 0;
  std::fill(block + 4, block + 8, uint8_t{0});
  for (int g = 0; g < 8; ++g) {
    const int s = fit.s[g] + 32;
    high = static_cast<uint16_t>(high | (s >> 4) << (2 * g));
    block[4 + g / 2] |= static_cast<uint8_t>((s & 15) << (g % 2 * 4));
    for (int i = 0; i < 16; ++i)
      block[8 + g * 16 + i] =
          static_cast<uint8_t>(NonLinearLevels::index(fit.v[g * 32 + i]) | NonLinearLevels::index(fit.v[g * 32 + i + 16]) << 4);
  }
  std::memcpy(block + 2, &high, 2);
}

void encode_tq2_0(const float* x, const float* w, uint8_t* block) {
  const float d = ternary_scale(x, w), inverse = inverse_of(d);
  store_pairs_of_bits(block, [&](int i) { return ternary(x[i], inverse); });
  store_f16(d, block + 64);
}

void encode_tq1_0(const float* x, const float* w, uint8_t* block) {
  const float d = ternary_scale(x, w), inverse = inverse_of(d);
  const auto spell = [&](uint8_t* to, int bytes, int count, const float* from) {
    for (int b = 0; b < bytes; ++b) {
      int number = 0;
      for (int n = 0; n < count; ++n) number = number * 3 + ternary(from[n * bytes + b], inverse);
      for (int n = count; n < 5; ++n) number *= 3;
      to[b] = static_cast<uint8_t>((number * 256 + 242) / 243);
    }
  };
  spell(block, 32, 5, x);
  spell(block + 32, 16, 5, x + 160);
  spell(block + 48, 4, 4, x + 240);
  store_f16(d, block + 52);
}

}  // namespace vitrine
