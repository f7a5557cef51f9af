#pragma once
// The checksum that golden lists of files give instead of the bytes.
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace vitrine {

/// CRC-32 of bytes that follow others whose checksum is `before`.
inline uint32_t crc32_of(std::span<const std::byte> bytes, uint32_t before = 0) {
  return static_cast<uint32_t>(crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace vitrine
