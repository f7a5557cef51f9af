#include "quantize/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "quantize/encoders.h"

namespace vitrine {
namespace {

EncodeBlock encoder_of(DType type) {
  switch (type) {
    case DType::q4_0: return encode_q4_0;
    case DType::q4_1: return encode_q4_1;
    case DType::q5_0: return encode_q5_0;
    case DType::q5_1: return encode_q5_1;
    case DType::q8_0: return encode_q8_0;
    case DType::q2_k: return encode_q2_k;
    case DType::q3_k: return encode_q3_k;
    case DType::q4_k: return encode_q4_k;
    case DType::q5_k: return encode_q5_k;
    case DType::q6_k: return encode_q6_k;
    case DType::iq2_xxs: return encode_iq2_xxs;
    case DType::iq2_xs: return encode_iq2_xs;
    case DType::iq2_s: return encode_iq2_s;
    case DType::iq3_xxs: return encode_iq3_xxs;
    case DType::iq3_s: return encode_iq3_s;
    case DType::iq1_s: return encode_iq1_s;
    case DType::iq1_m: return encode_iq1_m;
    case DType::iq4_nl: return encode_iq4_nl;
    case DType::iq4_xs: return encode_iq4_xs;
    case DType::tq1_0: return encode_tq1_0;
    case DType::tq2_0: return encode_tq2_0;
    case DType::mxfp4: return encode_mxfp4;
    default: return nullptr;
  }
}

constexpr float kLargest =
    30000;  // that every type holds: scales and minima are f16 numbers. Q8_0 holds more, and searches nothing

// How much the squared error of each value counts. Of inputs that are not known, large weights are taken to matter more. `mean`:
// of the row's squares.
void error_weights(const float* x, const float* importance, size_t n, float mean, float* w) {
  float most = 0;
  for (size_t i = 0; importance != nullptr && i < n; ++i) most = std::max(most, importance[i]);
  for (size_t i = 0; i < n; ++i)
    w[i] = most > 0 ? importance[i] / most * std::sqrt(mean + x[i] * x[i]) : std::sqrt(mean) + std::abs(x[i]);
}

// Of values that a block can hold.
float mean_square(const float* x, size_t n) {
  float squares = 0;
  for (size_t i = 0; i < n; ++i) squares += std::abs(x[i]) <= kLargest ? x[i] * x[i] : 0;
  return squares / static_cast<float>(n);
}

}  // namespace

bool can_encode(DType type) {
  return encoder_of(type) != nullptr || type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

std::string encodable_types() {
  std::string text;
  for (int type = 0; type < kWeightTypes; ++type)
    if (can_encode(static_cast<DType>(type))) text += (text.empty() ? "" : "|") + std::string(name_of(static_cast<DType>(type)));
  return text;
}

void encode_row(DType type, const float* row, size_t n, const float* importance, std::byte* out) {
  if (!is_block(type)) {
    for (size_t i = 0; i < n; ++i) {
      const uint16_t half = type == DType::f16 ? f32_to_f16(row[i]) : f32_to_bf16(row[i]);
      if (type == DType::f32)
        std::memcpy(out + i * 4, &row[i], 4);
      else
        std::memcpy(out + i * 2, &half, 2);
    }
    return;
  }
  const EncodeBlock encode = encoder_of(type);
  const size_t size = block_elements(type), bytes = block_bytes(type);
  const float mean = mean_square(row, n), largest = type == DType::q8_0 ? std::numeric_limits<float>::max() : kLargest;
  float w[kLargestBlock];
  for (size_t i = 0; i < n; i += size, out += bytes) {
    if (std::any_of(row + i, row + i + size, [largest](float x) { return !(std::abs(x) <= largest); })) {
      std::memset(out, 0xff, bytes);  // NaN or infinity in every type
      continue;
    }
    error_weights(row + i, importance == nullptr ? nullptr : importance + i, size, mean, w);
    encode(row + i, w, reinterpret_cast<uint8_t*>(out));
  }
}

}  // namespace vitrine
