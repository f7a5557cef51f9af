#include "picture/page/printable.h"

#include <cstdint>
#include <string_view>

namespace vitrine {
namespace {

constexpr std::string_view kDigits =
    "!#$%'()*+,-./0123456789:;=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~";
static_assert(kDigits.size() == 91 && 91 * 91 >= 1 << 13 && 91 >= 1 << 6);

}  // namespace

std::string printable(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(bytes.size() * 16 / 13 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (const std::byte byte : bytes) {
    bits |= static_cast<uint32_t>(byte) << count;
    count += 8;
    if (count < 13) continue;
    const uint32_t value = bits & 0x1fff;
    text += kDigits[value % 91];
    text += kDigits[value / 91];
    bits >>= 13;
    count -= 13;
  }
  if (count > 0) text += kDigits[bits % 91];
  if (count > 6) text += kDigits[bits / 91];
  return text;
}

}  // namespace vitrine
