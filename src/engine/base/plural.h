#pragma once
// A number with the word for what it counts.
#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine {

/// "1 token", "7 tokens", "0 tokens"; "0.5 radians" of a number that is written already.
inline std::string plural(std::string_view number, std::string_view one) {
  return std::string(number) + " " + std::string(one) + (number == "1" ? "" : "s");
}
inline std::string plural(int64_t n, std::string_view one) { return plural(std::to_string(n), one); }
inline std::string plural(size_t n, std::string_view one) { return plural(std::to_string(n), one); }

}  // namespace vitrine
