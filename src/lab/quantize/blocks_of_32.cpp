// Blocks of 32 values: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.
#include "quantize/encoders.h"
#include "quantize/search.h"

namespace vitrine {
namespace {

// 32 values of four bits in 16 bytes: the first half's are the low nibbles.
void store_nibbles(const uint8_t (&q)[32], uint8_t* to) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>((q[i] & 15) | (q[i + 16] & 15) << 4);
}

void store_fifth_bits(const uint8_t (&q)[32], uint8_t* to) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(q[i] >> 4 & 1) << i;
  std::memcpy(to, &bits, 4);
}

template <int kHalf>  // q - kHalf is the level
void encode_scaled(const float* x, const float* w, uint8_t* d_at, uint8_t (&q)[32]) {
  using Levels = WholeLevels<-kHalf, kHalf - 1>;
  const float d = as_f16(best_scale<Levels>(x, w, 32)), inverse = inverse_of(d);
  store_f16(d, d_at);
  for (int i = 0; i < 32; ++i) q[i] = static_cast<uint8_t>(static_cast<int>(Levels::nearest(x[i] * inverse)) + kHalf);
}

template <int kTop>
void encode_affine(const float* x, const float* w, uint8_t* d_at, uint8_t (&q)[32]) {
  const ScaleAndMinimum found = best_scale_and_minimum(x, w, 32, kTop, false);
  const float d = as_f16(found.scale), m = as_f16(-found.minimum), inverse = inverse_of(d);
  store_f16(d, d_at);
  store_f16(m, d_at + 2);
  for (int i = 0; i < 32; ++i) q[i] = static_cast<uint8_t>(std::min(std::max(whole((x[i] - m) * inverse), 0.0f), float(kTop)));
}

}  // namespace

void encode_q4_0(const float* x, const float* w, uint8_t* block) {
  uint8_t q[32];
  encode_scaled<8>(x, w, block, q);
  store_nibbles(q, block + 2);
}

void encode_q5_0(const float* x, const float* w, uint8_t* block) {
  uint8_t q[32];
  encode_scaled<16>(x, w, block, q);
  store_fifth_bits(q, block + 2);
  store_nibbles(q, block + 6);
}

void encode_q4_1(const float* x, const float* w, uint8_t* block) {
  uint8_t q[32];
  encode_affine<15>(x, w, block, q);
  store_nibbles(q, block + 4);
}

void encode_q5_1(const float* x, const float* w, uint8_t* block) {
  uint8_t q[32];
  encode_affine<31>(x, w, block, q);
  store_fifth_bits(q, block + 4);
  store_nibbles(q, block + 8);
}

// No search: the largest value becomes 127, the others are rounded, halves away from zero, as every writer of Q8_0 does.
void encode_q8_0(const float* x, const float*, uint8_t* block) {
  const float d = std::abs(extreme_of(x, 32)) / 127, inverse = d < std::numeric_limits<float>::min() ? 0 : 1 / d;
  store_f16(d, block);
  for (int i = 0; i < 32; ++i) block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(x[i] * inverse)));
}

void encode_iq4_nl(const float* x, const float* w, uint8_t* block) {
  const float d = as_f16(best_scale<NonLinearLevels>(x, w, 32)), inverse = inverse_of(d);
  uint8_t q[32];
  for (int i = 0; i < 32; ++i) q[i] = static_cast<uint8_t>(NonLinearLevels::index(x[i] * inverse));
  store_f16(d, block);
  store_nibbles(q, block + 2);
}

void encode_mxfp4(const float* x, const float* w, uint8_t* block) {
  const auto nearest = [](float magnitude) {  // of 0, 1/2, 1, 3/2, 2, 3, 4, 6
    int q = 0;
    for (const float border : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}) q += magnitude > border;
    return q;
  };
  static constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  int top = 0;
  const float extreme = std::abs(extreme_of(x, 32));
  if (extreme > 0) std::frexp(extreme, &top);
  int best = 0;
  float best_error = std::numeric_limits<float>::infinity();
  for (int exponent = top - 4; exponent <= top - 1; ++exponent) {  // the largest value is six, four or less times the scale
    if (exponent < -127 || exponent > 127) continue;
    const float inverse = std::ldexp(1.0f, -exponent), scale = std::ldexp(1.0f, exponent);
    float error = 0;
    for (int i = 0; i < 32; ++i) {
      const float off = kMagnitudes[nearest(std::abs(x[i]) * inverse)] * scale - std::abs(x[i]);
      error += w[i] * off * off;
    }
    if (error < best_error) best_error = error, best = exponent;
  }
  const float inverse = std::ldexp(1.0f, -best);
  uint8_t q[32];
  for (int i = 0; i < 32; ++i) {
    const int magnitude = nearest(std::abs(x[i]) * inverse);
    q[i] = static_cast<uint8_t>(magnitude | (x[i] < 0 && magnitude > 0 ? 8 : 0));
  }
  block[0] = static_cast<uint8_t>(extreme > 0 ? best + 127 : 0);
  store_nibbles(q, block + 1);
}

}  // namespace vitrine
