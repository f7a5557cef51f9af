#pragma once
// What a capped number was before its cap, as far as it tells.
#include <string>
#include <string_view>

namespace vitrine {

/// Beyond so many caps the last bits of a capped f32 say less than its first four digits, and so many caps stand for that or
/// more.
constexpr double kMostCaps = 6;

/// Whether `largest` stands for that or more; and `number`, which is `largest` written, with "at least " in front where it stands
/// for more.
inline bool is_most(double largest, double cap) { return largest >= 0.9999 * kMostCaps * cap; }
inline std::string at_least(std::string_view number, double largest, double cap) {
  return (is_most(largest, cap) ? "at least " : "") + std::string(number);
}

}  // namespace vitrine
