#pragma once
// Curves in a few lines of a terminal: each character cell holds two by four dots (Unicode's Braille patterns, U+2800).
#include <span>
#include <string>
#include <vector>

namespace vitrine::cli {

/// Points of a curve, x rising.
struct ChartCurve {
  std::span<const double> x, y;
  const char* style;  // ANSI: "36"; empty: as the text around it
};

/// `rows` lines of `columns` characters, from the top: the curves over [x_low, x_high], their largest value at the top and
/// their smallest at the bottom, on a logarithmic axis if `log` (values above 0 only). Between points a curve is straight;
/// where several points fall into one dot's width, their mean is drawn. Later curves lie over earlier ones.
/// Values that are not finite are left out.
struct Chart {
  std::vector<std::string> lines;
  double low = 0, high = 0;  // of what is drawn; both 0 if nothing is
};
Chart braille_chart(std::span<const ChartCurve> curves, double x_low, double x_high, int columns, int rows, bool log = false);

}  // namespace vitrine::cli
