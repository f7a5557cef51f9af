#pragma once
// Words beside a number.
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine {

/// "1 token", "7 tokens", "0 tokens"; "0.5 radians" of a number that is written already.
inline std::string plural(std::string_view number, std::string_view one) {
  return fmt::format("{} {}{}", number, one, number == "1" ? "" : "s");
}
inline std::string plural(int64_t n, std::string_view one) { return plural(std::to_string(n), one); }
inline std::string plural(size_t n, std::string_view one) { return plural(std::to_string(n), one); }

/// A capped number, undone: beyond so many caps the last bits of an f32 say less than its first four digits, and so many caps
/// stand for that or more.
constexpr double kMostCaps = 6;
inline std::string at_least(std::string_view number, double largest, double cap) {
  return fmt::format("{}{}", largest >= 0.9999 * kMostCaps * cap ? "at least " : "", number);
}

}  // namespace vitrine
