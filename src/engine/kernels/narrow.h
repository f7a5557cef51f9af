#pragma once
// Keys and values in a type narrower than f32, as a cache keeps a block of kKeyBlock positions of one head: lines of numbers,
// one line per component of the keys (transposed: a number per key) or per value. f16 holds the numbers themselves. q8_0 and
// q4_0 hold codes with the meaning of BlockQ8_0 and BlockQ4_0: 32 neighboring components of one key or value share a scale,
// and the scales stand by themselves, [groups of 32 components][kKeyBlock].
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/types.h"

namespace vitrine {

struct NarrowBlock {
  DType type = DType::f32;  // f32: there is none
  const std::byte* lines = nullptr;
  const uint16_t* scales = nullptr;  // f16; of q8_0 and q4_0
};

constexpr bool is_cache_type(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::q8_0 || type == DType::q4_0;
}

constexpr size_t narrow_groups(size_t components) { return (components + kBlock - 1) / kBlock; }

/// Bytes of a line of n numbers, which ends at a multiple of 32 numbers. Of every 32 numbers of q4_0, byte i holds number i
/// low and number i + 16 high.
constexpr size_t narrow_line_bytes(DType type, size_t n) {
  const size_t padded = narrow_groups(n) * kBlock;
  return type == DType::f16 ? 2 * padded : type == DType::q8_0 ? padded : padded / 2;
}

/// f16 scales of a block of keys or values of so many components.
constexpr size_t narrow_scales(DType type, size_t components) {
  return is_block(type) ? narrow_groups(components) * kKeyBlock : 0;
}

/// Number i of a line, without its scale.
inline float narrow_number(DType type, const std::byte* line, size_t i) {
  switch (type) {
    case DType::f16: return f16_to_f32(reinterpret_cast<const uint16_t*>(line)[i]);
    case DType::q8_0: return static_cast<float>(reinterpret_cast<const int8_t*>(line)[i]);
    default: {
      const auto pair = static_cast<unsigned>(line[i / kBlock * 16 + i % 16]);
      return static_cast<float>(static_cast<int>(i % kBlock < 16 ? pair & 15u : pair >> 4) - 8);
    }
  }
}

/// Component c of key j, and component c of value j of v_dim.
inline float narrow_key(const NarrowBlock& k, size_t c, size_t j) {
  const float number = narrow_number(k.type, k.lines + c * narrow_line_bytes(k.type, kKeyBlock), j);
  return is_block(k.type) ? f16_to_f32(k.scales[c / kBlock * kKeyBlock + j]) * number : number;
}
inline float narrow_value(const NarrowBlock& v, size_t v_dim, size_t c, size_t j) {
  const float number = narrow_number(v.type, v.lines + j * narrow_line_bytes(v.type, v_dim), c);
  return is_block(v.type) ? f16_to_f32(v.scales[c / kBlock * kKeyBlock + j]) * number : number;
}

}  // namespace vitrine
