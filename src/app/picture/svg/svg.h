#pragma once
// A writer of small SVG files: marks, text, two color scales that follow the reader's light or dark mode, text alternatives.
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// Where a number lies on an axis.
struct SvgScale {
  double low = 0, high = 1;  // numbers
  double from = 0, to = 1;   // pixels
  bool log = false;          // then low > 0
  bool whole = false;        // its ticks are whole numbers
  double at(double value) const;
  std::vector<double> ticks() const;  // round numbers, or powers of ten
};
/// From the smallest to the largest finite number, rounded outwards a little.
SvgScale scale_over(const std::vector<double>& values, double from, double to, bool log = false, bool with_zero = false);

enum class Anchor { start, middle, end };

class Svg {
 public:
  Svg(double width, double height, const std::string& title, const std::string& description);

  /// color: "ink", "muted", "faint", "accent", "accent2", "s0" … "s16" (sequential), "d0" … "d16" (diverging, d8 is zero); lines
  /// may be "accent dashed".
  void line(double x1, double y1, double x2, double y2, std::string_view color, double width = 1);
  void arrow(double x1, double y1, double x2, double y2, std::string_view color, double width = 1.5);
  void path(const std::vector<std::pair<double, double>>& points, std::string_view color, double width = 1.5);
  void polygon(const std::vector<std::pair<double, double>>& corners, std::string_view color, const std::string& hint = "");
  void circle(double x, double y, double r, std::string_view color, const std::string& hint = "");
  void rect(double x, double y, double w, double h, std::string_view color, const std::string& hint = "");
  void frame(double x, double y, double w, double h, std::string_view color);
  void text(double x, double y, const std::string& words, Anchor anchor = Anchor::start, std::string_view color = "ink",
            double size = 12);
  /// Text turned so that it reads from below.
  void text_up(double x, double y, const std::string& words, std::string_view color = "muted", Anchor anchor = Anchor::middle,
               double size = 12);

  void x_axis(const SvgScale& scale, double y, const std::string& label);
  void y_axis(const SvgScale& scale, double x, const std::string& label, double grid_to = 0);
  /// Cells of a grid with rows from top; share in [0, 1] (sequential) or [-1, 1] (diverging). Cells of a row with one color
  /// are drawn as one. hint(row, column) is shown on hover where the grid is small.
  template <class Value, class Hint>
  void heat(double x, double y, double cell_w, double cell_h, size_t rows, size_t columns, bool diverging, Value&& value,
            Hint&& hint);
  /// The color scale with its ends.
  void legend(double x, double y, const std::string& low, const std::string& high, bool diverging);

  /// Pixels that a line of text takes, near enough to lay boxes out and to cut what would be clipped.
  static double text_width(const std::string& words, double size = 12);

  double width() const { return width_; }
  double height() const { return height_; }
  /// Before finish(), where what is drawn decides it.
  void set_height(double height) { height_ = height; }
  std::string finish() &&;

 private:
  static int level(double share, bool diverging);
  double width_, height_;
  std::string title_, description_, body_;
};

// --------------------------------------------------------------------------------------------------------------------
template <class Value, class Hint>
void Svg::heat(double x, double y, double cell_w, double cell_h, size_t rows, size_t columns, bool diverging, Value&& value,
               Hint&& hint) {
  constexpr size_t kMostHints = 1000;
  const bool hints = rows * columns <= kMostHints;
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns;) {
      const int shade = level(value(r, c), diverging);
      size_t end = c + 1;
      while (!hints && end < columns && level(value(r, end), diverging) == shade) ++end;
      rect(x + static_cast<double>(c) * cell_w, y + static_cast<double>(r) * cell_h, cell_w * static_cast<double>(end - c),
           cell_h, (diverging ? "d" : "s") + std::to_string(shade), hints ? hint(r, c) : std::string());
      c = end;
    }
}

}  // namespace vitrine
