#pragma once
// FNV-1a, a checksum of bytes that anybody can compute; no defense against whoever wants two texts to share one.
// Source: Fowler, Noll, Vo, http://www.isthe.com/chongo/tech/comp/fnv
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace vitrine {

inline constexpr uint64_t kFnvOfNothing = 0xcbf29ce484222325u;

/// Of bytes behind those of which it is `before`.
inline uint64_t fnv1a(std::span<const std::byte> bytes, uint64_t before = kFnvOfNothing) {
  for (const std::byte byte : bytes) before = (before ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  return before;
}
inline uint64_t fnv1a(std::string_view text, uint64_t before = kFnvOfNothing) {
  return fnv1a(std::as_bytes(std::span(text.data(), text.size())), before);
}

}  // namespace vitrine
