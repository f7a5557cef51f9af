#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace vitrine {

/// Bytes as text that means nothing in a page and that no tool changes: 91 of the printable ASCII characters, without " & and <.
/// 13 bits, the lowest first, are two characters, the lower digit first; at the end up to 6 bits are one character. 8 bytes
/// become 9.85 characters, where base64 needs 10.67. web/src/live/unpack.ts reads it.
std::string printable(std::span<const std::byte> bytes);

}  // namespace vitrine
