// Drawings of the chapter on heads that no chart declares: a block and its parts, wheels of positions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "picture/svg/drawings.h"

namespace vitrine {
namespace {

constexpr double kBlockWidth = 640, kStreamX = 90, kBoxX = 190, kBoxWidth = 300, kBoxHeight = 30;

// A box of the branch, from whose middle the next one follows; returns the y of its lower edge.
double add_box(Svg& svg, double y, const std::string& words, std::string_view color, const PictureJson& heads) {
  svg.frame(kBoxX, y, kBoxWidth, kBoxHeight, color);
  svg.text(kBoxX + kBoxWidth / 2, y + 19, words, Anchor::middle);
  const auto n = heads.is_number() ? heads.get<double>() : 0;
  const double step = std::min(14.0, 120 / std::max(n, 1.0));
  for (double h = 0; h < n; ++h) svg.rect(kBoxX + kBoxWidth + 12 + h * step, y + 8, step * 0.7, 14, color);
  return y + kBoxHeight;
}

std::string length_text(const PictureJson& length) {
  return length.is_null() ? std::string() : "length " + short_number(length.get<double>());
}

}  // namespace

Svg svg_of_block_diagram(const PictureView& c) {
  Svg svg(kBlockWidth, 0, c.title(), c.alt());
  const PictureJson& lengths = c.picture.at("lengths");
  double y = 20;
  svg.text(kStreamX - 12, y + 4, "stream", Anchor::end, "muted");
  svg.text(kStreamX + 10, y + 4, length_text(lengths[0]), Anchor::start, "muted", 11);
  size_t i = 0;
  for (const PictureJson& part : c.picture.at("parts")) {
    const bool adds = part.at("adds").get<bool>();
    const std::string_view color = part.at("id") == "attention" ? "accent" : "accent2";
    const double middle = kBoxX + kBoxWidth / 2, split = y + 26;
    svg.line(kStreamX, y + 8, kStreamX, split, "ink", 2);
    svg.line(kStreamX, split, middle, split, color, 1.5);
    double at = split;
    const auto box = [&](const PictureJson& words, std::string_view of, const PictureJson& heads) {
      if (words.is_null()) return;
      svg.arrow(middle, at, middle, at + 16, color);
      at = add_box(svg, at + 16, words.get<std::string>(), of, heads);
    };
    box(part.at("normBefore"), "muted", nullptr);
    box(part.at("title"), color, part.at("heads"));
    box(part.at("normBehind"), "muted", nullptr);
    if (part.at("factor").is_number()) box("× " + short_number(part.at("factor").get<double>()), "muted", nullptr);
    const double plus = at + 22;
    svg.line(middle, at, middle, plus, color, 1.5);
    svg.arrow(middle, plus, kStreamX + (adds ? 10 : 0), plus, color);
    svg.text(middle - 8, plus - 6, (adds ? "adds " : "becomes the stream, ") + length_text(part.at("length")), Anchor::end,
             "muted", 11);
    if (adds) {
      svg.line(kStreamX, split, kStreamX, plus - 9, "ink", 2);
      svg.circle(kStreamX, plus, 9, "faint");
      svg.text(kStreamX, plus + 4, "+", Anchor::middle);
    }
    y = plus + 9;
    if (part.at("normAfter").is_string()) {
      svg.line(kStreamX, y, kStreamX, y + 12, "ink", 2);
      svg.frame(kStreamX - 50, y + 12, 100, kBoxHeight, "muted");
      svg.text(kStreamX, y + 31, part.at("normAfter").get<std::string>(), Anchor::middle);
      y += 12 + kBoxHeight;
    }
    svg.line(kStreamX, y, kStreamX, y + 16, "ink", 2);
    svg.text(kStreamX + 10, y + 20, length_text(lengths[++i]), Anchor::start, "muted", 11);
    y += 16;
  }
  svg.arrow(kStreamX, y, kStreamX, y + 18, "ink", 2);
  svg.set_height(y + 30);
  return svg;
}

Svg svg_of_sinusoid_wheel(const PictureView& c) {
  const PictureJson &wheels = c.picture.at("wheels"), &positions = c.picture.at("positions");
  constexpr double kLeft = 90, kRow = 112;
  const double step = (kBlockWidth - kLeft) / static_cast<double>(wheels.size()), radius = std::min(40.0, step / 2 - 10);
  Svg svg(kBlockWidth, 40 + kRow * static_cast<double>(positions.size()), c.title(), c.alt());
  for (size_t j = 0; j < wheels.size(); ++j)
    svg.text(kLeft + step * (static_cast<double>(j) + 0.5), 18,
             fmt::format("pair {}: {} rad", j, short_number(wheels[j].at("frequency").get<double>())), Anchor::middle, "muted",
             11);
  for (size_t k = 0; k < positions.size(); ++k) {
    const double y = 40 + kRow * (static_cast<double>(k) + 0.5);
    svg.text(16, y + 4, fmt::format("position {}", k));
    for (size_t j = 0; j < wheels.size(); ++j) {
      const double x = kLeft + step * (static_cast<double>(j) + 0.5);
      const double sin = positions[k][2 * j].get<double>(), cos = positions[k][2 * j + 1].get<double>();
      svg.circle(x, y, radius, "faint", fmt::format("pair {} of position {}: cosine {:.4f}, sine {:.4f}", j, k, cos, sin));
      svg.arrow(x, y, x + radius * cos, y - radius * sin, "accent");
    }
  }
  return svg;
}

}  // namespace vitrine
