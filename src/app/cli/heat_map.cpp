#include "cli/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/output.h"

namespace vitrine::cli {
namespace {

constexpr int kCell = 7;  // least columns of one number with its gap

// Decimals that tell a hundredth of the scale's reach apart.
int decimals_for(double reach) {
  return reach > 0 && std::isfinite(reach) ? std::clamp(2 - static_cast<int>(std::floor(std::log10(reach))), 0, 6) : 2;
}

std::string number_text(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  if (std::abs(value) >= 1e6) return fmt::format("{:.3g}", value);
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text[0] == '-' && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);  // a zero has no sign
  return text;
}

}  // namespace

// Blue (more) and orange (less) are told apart by every common kind of color blindness. Small shares color the letters alone, in
// tones of middle lightness, and only the largest get a ground: so a map reads on light and on dark terminals.
std::string colored(const std::string& text, double share) {
  const double size = std::abs(share);
  const bool more = share > 0;
  if (!(size >= 0.1)) return text;
  if (size < 0.4) return fmt::format("\x1b[38;5;{}m{}\x1b[0m", more ? 67 : 137, text);
  if (size < 0.75) return fmt::format("\x1b[1;38;5;{}m{}\x1b[0m", more ? 33 : 172, text);
  return fmt::format("\x1b[1;48;5;{};38;5;231m{}\x1b[0m", more ? 26 : 166, text);
}

std::string heat_map_text(const HeatMap& map, int terminal_columns, bool colors) {
  int label = width_of(map.corner);
  for (const std::string& row : map.rows) label = std::max(label, width_of(row));
  int cell = kCell;
  for (const std::string& column : map.columns) cell = std::max(cell, width_of(column) + 1);
  const int decimals = decimals_for(map.reach);
  for (const std::optional<double>& value : map.values)
    if (value) cell = std::max(cell, width_of(number_text(*value, decimals)) + 1);
  const size_t count = map.columns.size();
  const size_t room = terminal_columns > 0 ? static_cast<size_t>(std::max(1, (terminal_columns - label - 1) / cell)) : count;
  std::string text;
  for (size_t first = 0; first < count; first += room) {
    const size_t end = std::min(count, first + room);
    if (first > 0) text += "\n";
    text += pad_left(map.corner, label) + " ";
    for (size_t c = first; c < end; ++c) text += pad_left(map.columns[c], cell);
    text += "\n";
    for (size_t r = 0; r < map.rows.size(); ++r) {
      text += pad_left(map.rows[r], label) + " ";
      for (size_t c = first; c < end; ++c) {
        const std::optional<double> value = map.values[r * count + c];
        const std::string shown = pad_left(value ? number_text(*value, decimals) : "", cell);
        const double share = value && map.reach > 0 ? (*value - map.middle) / map.reach : 0;
        text += colors && value && !std::isnan(*value) ? colored(shown, share) : shown;
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace vitrine::cli
