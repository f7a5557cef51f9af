#pragma once
// A grid of numbers in the terminal, on colored cells where there are colors.
#include <optional>
#include <string>
#include <vector>

namespace vitrine::cli {

struct HeatMap {
  std::string corner;  // names the rows
  std::vector<std::string> rows, columns;
  std::vector<std::optional<double>> values;  // [row, column]; nothing: no such cell; NaN: "-"
  double middle = 0, reach = 1;               // the color scale goes from middle - reach (orange) to middle + reach (blue)
};

/// `text` in blue for a share of up to 1, in orange for one down to -1, the stronger the larger; near 0 as it is.
std::string colored(const std::string& text, double share);

/// Lines with newlines. Too many columns for the terminal's width are cut into blocks, one below the other; 0 columns of
/// terminal: no limit.
std::string heat_map_text(const HeatMap& map, int terminal_columns, bool colors);

}  // namespace vitrine::cli
