#pragma once
// Philox4x32-10, a counter-based generator: the numbers depend on (seed, counter) only, never on who asks first, so
// sampling and dropout give the same bits on any number of threads.
// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

namespace vitrine {

/// Four random 32-bit words for one counter value (c0, c1) under one key.
inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t c0, uint64_t c1) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(c0), static_cast<uint32_t>(c0 >> 32), static_cast<uint32_t>(c1),
                               static_cast<uint32_t>(c1 >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1), static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1,
         static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// Uniform in [0, 1) with 24 bits.
inline float uniform_from(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// Normal numbers of mean 0 and standard deviation 1, two from two words (Box and Muller, 1958).
inline std::array<double, 4> normals_from(const std::array<uint32_t, 4>& words) {
  std::array<double, 4> normals;
  for (size_t i = 0; i < 4; i += 2) {
    const double u = 1 - static_cast<double>(uniform_from(words[i])), v = static_cast<double>(uniform_from(words[i + 1]));
    const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
    normals[i] = radius * std::cos(angle);
    normals[i + 1] = radius * std::sin(angle);
  }
  return normals;
}

}  // namespace vitrine
