#pragma once
// Element types of tensors and weights. Block types are GGUF's, bit for bit, but for f8_e4m3: base/blocks has a file for each
// that is decoded before its products; the other two, Q8_0 and Q4_0, stand here.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace vitrine {

// Block types that are decoded to f32 before their products, one line each: name, elements of a block, its bytes, ggml's number.
// base/blocks/<name>.h has the layout.
#define VITRINE_DECODED_TYPES(TYPE) \
  TYPE(q4_1, 32, 20, 3)             \
  TYPE(q5_0, 32, 22, 6)             \
  TYPE(q5_1, 32, 24, 7)             \
  TYPE(q2_k, 256, 84, 10)           \
  TYPE(q3_k, 256, 110, 11)          \
  TYPE(q4_k, 256, 144, 12)          \
  TYPE(q5_k, 256, 176, 13)          \
  TYPE(q6_k, 256, 210, 14)          \
  TYPE(iq2_xxs, 256, 66, 16)        \
  TYPE(iq2_xs, 256, 74, 17)         \
  TYPE(iq2_s, 256, 82, 22)          \
  TYPE(iq3_xxs, 256, 98, 18)        \
  TYPE(iq3_s, 256, 110, 21)         \
  TYPE(iq1_s, 256, 50, 19)          \
  TYPE(iq1_m, 256, 56, 29)          \
  TYPE(iq4_nl, 32, 18, 20)          \
  TYPE(iq4_xs, 256, 136, 23)        \
  TYPE(tq1_0, 256, 54, 34)          \
  TYPE(tq2_0, 256, 66, 35)          \
  TYPE(mxfp4, 32, 17, 39)

#define VITRINE_NAME(name, elements, bytes, number) name,
enum class DType : uint8_t { f32, f16, bf16, q8_0, q4_0, VITRINE_DECODED_TYPES(VITRINE_NAME) f8_e4m3, f64, i32, i64, u8 };
#undef VITRINE_NAME

inline constexpr int kWeightTypes = static_cast<int>(DType::f64);  // the types a matrix may have come first

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
#define VITRINE_NAME(name, elements, bytes, number) \
  case DType::name: return #name;
      VITRINE_DECODED_TYPES(VITRINE_NAME)
#undef VITRINE_NAME
    case DType::f8_e4m3: return "f8_e4m3";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}

/// A block type that is decoded to f32 before its products.
constexpr bool is_decoded(DType type) { return type > DType::q4_0 && type < DType::f64; }

constexpr bool is_block(DType type) { return type >= DType::q8_0 && type < DType::f64; }

/// A block type whose blocks are integers and their scales: products take activations in int8, too.
constexpr bool has_integers(DType type) { return is_block(type) && type != DType::f8_e4m3; }

/// Elements that are stored together: 1, or those of a block.
constexpr size_t block_elements(DType type) {
  switch (type) {
    case DType::q8_0:
    case DType::q4_0:
    case DType::f8_e4m3: return kBlock;
#define VITRINE_ELEMENTS(name, elements, bytes, number) \
  case DType::name: return elements;
      VITRINE_DECODED_TYPES(VITRINE_ELEMENTS)
#undef VITRINE_ELEMENTS
    default: return 1;
  }
}
inline constexpr size_t kLargestBlock = 256;

/// Bytes of block_elements(type) elements.
constexpr size_t block_bytes(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::f64:
    case DType::i64: return 8;
    case DType::u8: return 1;
    case DType::q8_0: return sizeof(BlockQ8_0);
    case DType::q4_0: return sizeof(BlockQ4_0);
    case DType::f8_e4m3: return 36;
#define VITRINE_BYTES(name, elements, bytes, number) \
  case DType::name: return bytes;
      VITRINE_DECODED_TYPES(VITRINE_BYTES)
#undef VITRINE_BYTES
  }
  return 0;
}

/// Bytes of `n` elements stored in a row. For block types n must be a multiple of block_elements(type).
constexpr size_t row_bytes(DType type, size_t n) { return n / block_elements(type) * block_bytes(type); }

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

/// The types that a matrix may have, as text for messages.
std::string weight_types();

/// All elements of one block of a decoded type.
void decode_block(DType type, const void* block, float* y);
/// A block of any block type as integers: every 16 values are scale q - minimum, with an entry of scale and minimum for each 16.
void block_integers(DType type, const void* block, int8_t* q, float* scale, float* minimum);

/// Element i of a row of a decoded type. It decodes the block: a row is read faster by the kernels' `widen`.
float decoded_element(DType type, const void* row, size_t i);

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
    default: return is_decoded(type) ? decoded_element(type, row, i) : 0;
  }
}

}  // namespace vitrine
