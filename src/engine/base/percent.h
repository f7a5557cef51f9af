#pragma once
// A share in per cent, for people.
#include <cstdio>
#include <string>

namespace vitrine {

/// "35.2 %", "0.04 %", "<0.01 %".
inline std::string percent(double share) {
  const double value = share * 100;
  if (value > 0 && value < 0.005) return "<0.01 %";
  char text[352];  // a double has up to 309 digits before the point
  std::snprintf(text, sizeof text, value < 9.995 ? "%.2f %%" : "%.1f %%", value);
  return text;
}

}  // namespace vitrine
