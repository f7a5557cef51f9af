#pragma once
// A text whose pieces are colored by a number, and drawings, as one offline page without scripts.
#include <string>
#include <vector>

namespace vitrine {

struct ColoredPiece {
  std::string text;
  double share = 0;  // in [-1, 1]: from blue over nothing to orange; NaN: grey, it has no number
  std::string hint;  // shown on hover
};

struct ColoredPage {
  struct Passage {
    std::string heading;
    std::vector<ColoredPiece> pieces;
  };
  /// A drawing of picture/svg and what it shows, in words.
  struct Chart {
    std::string svg, alt;
  };
  std::string title;
  std::vector<std::string> lines;  // below the title
  std::string low, none, high;     // what blue, no color and orange mean; low: "" if nothing is blue
  std::vector<Passage> passages;
  std::vector<Chart> charts;
};

/// A whole HTML document. It loads nothing.
std::string colored_text_page(const ColoredPage& page);

}  // namespace vitrine
