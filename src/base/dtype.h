#pragma once
// Element types of tensors and weights, and the two block formats (GGUF's Q8_0 and Q4_0, number for number).
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace vitrine {

enum class DType : uint8_t { f32, f16, bf16, q8_0, q4_0, f64, i32, i64, u8 };

inline constexpr int kWeightTypes = 5;  // f32, f16, bf16, q8_0, q4_0: the types a matrix may have

/// 32 weights as int8 with one f16 scale: w = scale * q.
struct BlockQ8_0 {
  uint16_t scale;
  int8_t q[32];
};
/// 32 weights as 4-bit with one f16 scale: w[i] = scale * (low nibble of q[i] - 8), w[i + 16] = scale * (high nibble - 8).
struct BlockQ4_0 {
  uint16_t scale;
  uint8_t q[16];
};
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18);
inline constexpr size_t kBlock = 32;

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::q8_0: return "q8_0";
    case DType::q4_0: return "q4_0";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}

constexpr bool is_block(DType type) { return type == DType::q8_0 || type == DType::q4_0; }

/// Bytes of `n` elements stored in a row. For block types n must be a multiple of 32.
constexpr size_t row_bytes(DType type, size_t n) {
  switch (type) {
    case DType::f32:
    case DType::i32: return n * 4;
    case DType::f16:
    case DType::bf16: return n * 2;
    case DType::f64:
    case DType::i64: return n * 8;
    case DType::u8: return n;
    case DType::q8_0: return n / kBlock * sizeof(BlockQ8_0);
    case DType::q4_0: return n / kBlock * sizeof(BlockQ4_0);
  }
  return 0;
}

inline float bf16_to_f32(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

/// Rounds to nearest, ties to even; NaN stays NaN.
inline uint16_t f32_to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu, wide;
  if (exponent == 31) {
    wide = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    wide = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else if (mantissa == 0) {
    wide = sign;
  } else {  // subnormal: shift up to the implicit bit
    exponent = 113;
    while ((mantissa & 0x400u) == 0) {
      mantissa <<= 1;
      --exponent;
    }
    wide = sign | (exponent << 23) | ((mantissa & 0x3ffu) << 13);
  }
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

/// Rounds to nearest, ties to even; overflow becomes infinity.
inline uint16_t f32_to_f16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // subnormal or zero in f16
    if (magnitude < 0x33000000u) return sign;
    const uint32_t shift = 126 - (magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    return static_cast<uint16_t>(sign | (kept + (rest > half || (rest == half && (kept & 1u)) ? 1 : 0)));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

/// Element i of a row of weights of any matrix type, exactly as stored.
inline float element_at(DType type, const void* row, size_t i) {
  switch (type) {
    case DType::f32: return static_cast<const float*>(row)[i];
    case DType::f16: return f16_to_f32(static_cast<const uint16_t*>(row)[i]);
    case DType::bf16: return bf16_to_f32(static_cast<const uint16_t*>(row)[i]);
    case DType::q8_0: {
      BlockQ8_0 b;
      std::memcpy(&b, static_cast<const char*>(row) + i / kBlock * sizeof b, sizeof b);
      return f16_to_f32(b.scale) * static_cast<float>(b.q[i % kBlock]);
    }
    case DType::q4_0: {
      BlockQ4_0 b;
      std::memcpy(&b, static_cast<const char*>(row) + i / kBlock * sizeof b, sizeof b);
      const size_t j = i % kBlock;
      const int q = j < 16 ? (b.q[j] & 15) : (b.q[j - 16] >> 4);
      return f16_to_f32(b.scale) * static_cast<float>(q - 8);
    }
    default: return 0;
  }
}

}  // namespace vitrine
