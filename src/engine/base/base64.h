#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace vitrine {

/// RFC 4648, with padding.
std::string base64(std::span<const std::byte> bytes);
/// Characters that base64 makes of so many bytes.
constexpr size_t base64_size(size_t bytes) { return (bytes + 2) / 3 * 4; }

}  // namespace vitrine
