#include "picture/svg/opening.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/plural.h"
#include "picture/data/view.h"
#include "picture/svg/svg.h"

namespace vitrine {
namespace {

constexpr double kWidth = 960, kLeft = 130, kRight = 760, kTop = 34;
constexpr double kFaintest = 0.06;  // attention that is drawn

// Where things stand: depths 0 … layers go right, the tokens of the lens go down.
struct Place {
  size_t layers;
  double row;
  double x(double depth) const { return kLeft + (kRight - kLeft) * depth / static_cast<double>(layers); }
  double y(size_t at) const { return kTop + row * (static_cast<double>(at) + 0.5); }
};

void arcs(Svg& svg, const Place& place, const PictureJson& attention, size_t first, size_t rows) {
  if (attention.at("level") != "full") return;
  const size_t heads = attention.at("nHeads"), n = attention.at("nTokens");
  for (size_t layer = 0; layer < place.layers; ++layer) {
    const std::vector<double> weights = unpacked(attention.at("patterns")[layer]);
    for (size_t target = 1; target < rows; ++target)
      for (size_t source = 0; source < target; ++source) {
        double mean = 0;
        for (size_t head = 0; head < heads; ++head)
          mean += weights[(head * n + first + target) * n + first + source] / static_cast<double>(heads);
        if (!(mean > kFaintest)) continue;
        const double from = static_cast<double>(layer) + 0.1, to = from + 0.75;
        std::vector<std::pair<double, double>> points;
        constexpr int kPieces = 12;
        for (int i = 0; i <= kPieces; ++i) {
          const double t = static_cast<double>(i) / kPieces, rise = t * t * (3 - 2 * t);
          points.emplace_back(place.x(from + (to - from) * t), place.y(source) + (place.y(target) - place.y(source)) * rise);
        }
        svg.path(points, fmt::format("s{}", std::clamp(static_cast<int>(std::lround(4 + 10 * mean)), 4, 14)), 0.6 + 2.6 * mean);
      }
  }
}

// Everything from the first stream on is uncovered in 6 of 9 seconds.
std::string growing(std::string svg) {
  constexpr std::string_view kBegin =
      "<style>@keyframes grow{from{clip-path:inset(-2rem 100% -2rem 0)}66%,to{clip-path:inset(-2rem 0 -2rem 0)}}"
      ".grow{animation:grow 9s linear infinite}@media(prefers-reduced-motion:reduce){.grow{animation:none}}</style><g "
      "class=\"grow\">";
  const size_t end = svg.rfind("</svg>"), begin = svg.find("<polygon");
  if (begin == std::string::npos || end == std::string::npos) return svg;
  svg.insert(end, "</g>");
  svg.insert(begin, kBegin);
  return svg;
}

}  // namespace

std::optional<std::string> opening_svg(const PictureJson& document, bool moving) {
  const PictureJson& pictures = document.at("pictures");
  const PictureJson* lens = available(pictures, "logit-lens");
  if (lens == nullptr) return {};
  const PictureOptions options;
  const PictureView view{document, *lens, options};
  const PictureJson &lengths = lens->at("lengths"), &ids = lens->at("ids"), &probs = lens->at("probs");
  const size_t rows = lengths.size(), first = lens->at("positions")[0], layers = lens->at("depths").size() - 1;
  const Place place{layers, std::clamp(420.0 / static_cast<double>(rows), 14.0, 34.0)};
  double longest = 0;
  for (const PictureJson& row : lengths)
    for (const double length : number_list(row))
      if (length > longest) longest = length;
  const double size = place.row < 18 ? 10 : 13;
  const std::string last_token = view.token_at(first + rows - 1), answer = view.spelling(ids[rows - 1][layers][0]);
  Svg svg(
      kWidth, kTop + place.row * static_cast<double>(rows) + 16, "The model at work on its prompt",
      fmt::format("{} through {}: after {} the model finds {} most likely, with a probability of {:.3g}.", plural(rows, "token"),
                  plural(layers, "layer"), last_token, answer, probs[rows - 1][layers][0].get<double>()));
  for (size_t layer = 0; layer < layers; layer += layers > 16 ? 4 : 1)
    svg.text(place.x(static_cast<double>(layer) + 0.5), 18, fmt::format("layer {}", layer), Anchor::middle, "muted", 11);
  for (size_t at = 0; at < rows; ++at) {
    const std::vector<double> row = number_list(lengths[at]);
    std::vector<std::pair<double, double>> outline;
    const auto half = [&](size_t depth) {
      return std::isfinite(row[depth]) && longest > 0 ? std::max(0.5, 0.27 * place.row * row[depth] / longest) : 0.5;
    };
    for (size_t depth = 0; depth <= layers; ++depth)
      outline.emplace_back(place.x(static_cast<double>(depth)), place.y(at) - half(depth));
    for (size_t depth = layers + 1; depth-- > 0;)
      outline.emplace_back(place.x(static_cast<double>(depth)), place.y(at) + half(depth));
    svg.polygon(outline, at + 1 == rows ? "accent" : "faint");
  }
  if (const PictureJson* attention = available(pictures, "attention"); attention != nullptr)
    arcs(svg, place, *attention, first, rows);
  for (size_t at = 0; at < rows; ++at) {
    svg.text(kLeft - 8, place.y(at) + size / 3, view.token_at(first + at), Anchor::end, "ink", size);
    if (at + 1 < rows)
      svg.text(kRight + 8, place.y(at) + size / 3, view.spelling(ids[at][layers][0]), Anchor::start, "muted", size);
  }
  // The answer: as large as there is room for, the next ones above it.
  for (size_t i = 0; i < probs[rows - 1][layers].size(); ++i) {
    const double p = probs[rows - 1][layers][i], y = place.y(rows - 1) - 22.0 * static_cast<double>(i);
    if (y < kTop) break;
    svg.text(kWidth - 8, y + 5, fmt::format("{} {:.1f} %", view.spelling(ids[rows - 1][layers][i]), 100 * p), Anchor::end,
             i == 0 ? "accent" : "muted", i == 0 ? 18 : 13);
  }
  std::string drawn = std::move(svg).finish();
  return moving ? growing(std::move(drawn)) : drawn;
}

}  // namespace vitrine
