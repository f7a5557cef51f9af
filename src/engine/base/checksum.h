#pragma once
// A checksum of whole 8-byte words. Each word is mixed with what came before by a multiplication and a shift (the steps of
// SplitMix64). It finds damage and differences; it is no protection against forgery.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace vitrine {

/// The checksum `before`, 0 at first, continued over the whole words of `bytes`; up to 7 bytes after them are not read.
inline uint64_t word_checksum(uint64_t before, std::span<const std::byte> bytes) {
  uint64_t sum = before;
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 32;
  }
  return sum;
}

}  // namespace vitrine
