#include "base/base64.h"

#include <algorithm>

namespace vitrine {

std::string base64(std::span<const std::byte> bytes) {
  static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    unsigned block = 0;
    for (size_t k = 0; k < 3; ++k) block = block << 8 | (k < n ? std::to_integer<unsigned>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) text += k <= n ? kLetters[block >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace vitrine
