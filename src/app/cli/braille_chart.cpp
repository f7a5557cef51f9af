#include "cli/braille_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace vitrine::cli {
namespace {

// Bits of a cell's dots [column][row], as Unicode numbers them.
constexpr unsigned kDots[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};

std::string utf8(unsigned braille) {
  const unsigned point = 0x2800 + braille;
  return {static_cast<char>(0xe0 | point >> 12), static_cast<char>(0x80 | (point >> 6 & 0x3f)),
          static_cast<char>(0x80 | (point & 0x3f))};
}

bool drawable(double y, bool log) { return std::isfinite(y) && (!log || y > 0); }

// The curve's height at each dot column; NaN outside of it.
std::vector<double> heights(const ChartCurve& curve, double x_low, double x_high, size_t dots, bool log) {
  std::vector<double> sum(dots, 0), height(dots, NAN);
  std::vector<int> count(dots, 0);
  for (size_t i = 0; i < curve.x.size(); ++i) {
    if (!drawable(curve.y[i], log)) continue;
    const double share = x_high > x_low ? (curve.x[i] - x_low) / (x_high - x_low) : 0;
    const auto dot = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(dots - 1) + 0.5);
    sum[dot] += log ? std::log(curve.y[i]) : curve.y[i];
    ++count[dot];
  }
  size_t last = dots;  // the latest column that has points
  for (size_t d = 0; d < dots; ++d) {
    if (count[d] == 0) continue;
    height[d] = sum[d] / count[d];
    for (size_t between = last + 1; last < dots && between < d; ++between)
      height[between] =
          height[last] + (height[d] - height[last]) * static_cast<double>(between - last) / static_cast<double>(d - last);
    last = d;
  }
  return height;
}

}  // namespace

Chart braille_chart(std::span<const ChartCurve> curves, double x_low, double x_high, int columns, int rows, bool log) {
  Chart chart;
  const auto width = static_cast<size_t>(std::max(1, columns)), lines = static_cast<size_t>(std::max(1, rows));
  std::vector<std::vector<double>> all;
  double low = INFINITY, high = -INFINITY;
  for (const ChartCurve& curve : curves) {
    all.push_back(heights(curve, x_low, x_high, 2 * width, log));
    for (const double h : all.back()) {
      if (std::isnan(h)) continue;
      low = std::min(low, h);
      high = std::max(high, h);
    }
  }
  std::vector<unsigned> cells(width * lines, 0);
  std::vector<const char*> styles(width * lines, "");
  const auto dot_rows = static_cast<double>(4 * lines - 1);
  for (size_t c = 0; c < all.size(); ++c) {
    size_t before = 0;
    bool drawn = false;
    for (size_t x = 0; x < 2 * width; ++x) {
      if (std::isnan(all[c][x])) {
        drawn = false;
        continue;
      }
      const double share = high > low ? (high - all[c][x]) / (high - low) : 0.5;
      const auto y = static_cast<size_t>(share * dot_rows + 0.5);
      // A steep stretch is one line, not two far dots.
      const size_t from = drawn ? std::min(y, before < y ? before + 1 : before) : y;
      const size_t to = drawn && before > y ? before - 1 : y;
      for (size_t dot = std::min(from, y); dot <= std::max(to, y); ++dot) {
        const size_t cell = dot / 4 * width + x / 2;
        cells[cell] |= kDots[x % 2][dot % 4];
        styles[cell] = curves[c].style;
      }
      before = y;
      drawn = true;
    }
  }
  for (size_t r = 0; r < lines; ++r) {
    std::string line;
    const char* style = "";
    for (size_t x = 0; x < width; ++x) {
      const char* const wanted = cells[r * width + x] != 0 ? styles[r * width + x] : "";
      if (std::string_view(wanted) != style) line += fmt::format("\x1b[{}m", *wanted != '\0' ? wanted : "0");
      style = wanted;
      line += cells[r * width + x] != 0 ? utf8(cells[r * width + x]) : " ";
    }
    if (*style != '\0') line += "\x1b[0m";
    chart.lines.push_back(std::move(line));
  }
  if (low <= high) {
    chart.low = log ? std::exp(low) : low;
    chart.high = log ? std::exp(high) : high;
  }
  return chart;
}

}  // namespace vitrine::cli
