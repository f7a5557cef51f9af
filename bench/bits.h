#pragma once
// Weights for measuring: random bits that are 0.007 to 1.5 as f32, f16 and bf16, so that no product meets a denormal number.
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vitrine {

/// Fills whole words of 8 bytes, and goes on from `state`.
inline void fill_with_bits(char* data, size_t bytes, uint64_t& state) {
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const uint64_t bits = (state & 0x81ff81ff81ff81ffull) | 0x3c003c003c003c00ull;
    std::memcpy(data + i, &bits, 8);
  }
}
inline constexpr uint64_t kFirstBits = 88172645463325252ull;

}  // namespace vitrine
