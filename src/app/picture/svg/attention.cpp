// Drawings of attention patterns: small multiples of all heads, or one head in full.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "picture/svg/drawings.h"

namespace vitrine {
namespace {

constexpr double kAttentionWidth = 640;

// Grids of the picture, either every token or tiles of several.
struct Patterns {
  const PictureView& c;
  bool full = c.picture.at("level") == "full";
  const PictureJson& grids = full ? c.picture.at("patterns") : c.picture.at("tiles").at("max");
  size_t layers = grids.size(), heads = c.picture.at("nHeads");
  size_t n = full ? c.picture.at("nTokens").get<size_t>() : c.picture.at("tiles").at("bins").get<size_t>();

  // What stands at a row or column.
  std::string name(size_t i, size_t most = 14) const {
    return full ? c.token_at(i, most) : fmt::format("tokens from {}", i * c.picture.at("tiles").at("tokensPerBin").get<size_t>());
  }
};

void scale_of_weights(Svg& svg, double x, double y) {
  svg.legend(x, y, "0", "1", false);
  svg.text(x + 146, y + 9, "attention weight", Anchor::start, "muted", 11);
}

// Names beside the rows and under the columns of a grid, as many as there is room for. Says whether that is all of them.
bool label_edges(Svg& svg, const Patterns& p, double left, double top, double bottom, double cell, double size, bool rows,
                 bool columns) {
  const size_t step = std::max<size_t>(1, static_cast<size_t>(std::ceil((size + 1) / cell)));
  for (size_t i = 0; i < p.n; i += step) {
    const double middle = cell * (static_cast<double>(i) + 0.5) + size / 3;
    if (rows) svg.text(left - 6, top + middle, p.name(i), Anchor::end, "ink", size);
    if (columns) svg.text_up(left + middle, bottom + 6, p.name(i), "ink", Anchor::end, size);
  }
  return step == 1;
}

Svg one_head(const Patterns& p, size_t layer, size_t head) {
  constexpr double kLeft = 120, kTop = 40, kSide = 480, kBottom = kTop + kSide;
  const size_t n = p.n;
  const std::vector<double> values = unpacked(p.grids[layer]);
  const double cell = kSide / static_cast<double>(n);
  Svg svg(kAttentionWidth, kBottom + 150, fmt::format("{}: layer {}, head {}", p.c.title(), layer, head), p.c.alt());
  svg.text(kLeft, 24, fmt::format("layer {}, head {}", layer, head), Anchor::start, "ink", 14);
  const auto value = [&](size_t t, size_t s) { return values[(head * n + t) * n + s]; };
  svg.heat(kLeft, kTop, cell, cell, n, n, false, value,
           [&](size_t t, size_t s) { return fmt::format("{} looks at {}: {:.4f}", p.name(t), p.name(s), value(t, s)); });
  svg.frame(kLeft, kTop, kSide, kSide, "faint");
  label_edges(svg, p, kLeft, kTop, kBottom, cell, 11, true, true);
  svg.text(kLeft + kSide, 24, "source (key) across, target (query) down", Anchor::end, "muted");
  scale_of_weights(svg, kLeft, kBottom + 112);
  return svg;
}

}  // namespace

Svg svg_of_attention(const PictureView& c) {
  const Patterns p{c};
  if (c.options.layer || c.options.head)
    return one_head(p, static_cast<size_t>(c.options.layer.value_or(0)), static_cast<size_t>(c.options.head.value_or(0)));

  // Tiles grow until the tokens' names fit at the edges, as long as the whole stays on a wide screen.
  constexpr double kSmall = 9, kCaption = 14, kWidest = 38 /* "L17 H12" */, kMostWidth = 1200, kLeft = 90, kTop = 34;
  const auto layers = static_cast<double>(p.layers), heads = static_cast<double>(p.heads), n = static_cast<double>(p.n);
  const double named = n * (kSmall + 1);
  double tile = std::clamp(600 / layers - 6, 30.0, 60.0);
  const bool names = p.full && (tile >= named || layers * (named + 6) <= kMostWidth);
  if (names) tile = std::max(tile, named);
  const double across = tile + 6, down = tile + kCaption, cell = tile / n;
  double deepest = 0;  // name under a column
  for (size_t i = 0; names && i < p.n; ++i) deepest = std::max(deepest, Svg::text_width(p.name(i), kSmall) + 6);
  const double below = kTop + down * heads + deepest + 6;
  std::vector<std::string> key;  // the tokens by number, where they have no names at the edges
  const double width = std::max(kAttentionWidth, kLeft + across * layers + 14);
  if (!names && p.full) {
    constexpr size_t kMostNamed = 120;
    std::string line;
    for (size_t i = 0; i < std::min(p.n, kMostNamed); ++i) {
      const std::string entry = fmt::format("{}{} {}", line.empty() ? "" : "   ", i, c.token_at(i));
      if (!line.empty() && kLeft + Svg::text_width(line + entry, 11) > width - 20) key.push_back(line), line.clear();
      line += line.empty() ? fmt::format("{} {}", i, c.token_at(i)) : entry;
    }
    key.push_back(line);
  }
  Svg svg(width, below + 82 + 16 * static_cast<double>(key.size()), c.title(), c.alt());
  for (size_t l = 0; l < p.layers; ++l) {
    const std::vector<double> values = unpacked(p.grids[l]);
    const double x = kLeft + across * static_cast<double>(l);
    svg.text(x + tile / 2, 16, tile >= 50 ? fmt::format("layer {}", l) : std::to_string(l), Anchor::middle, "ink", 11);
    for (size_t place = 0; place < p.heads; ++place) {
      const size_t head = c.picture.at("flatToSpiky")[l][place];
      const double y = kTop + down * static_cast<double>(place);
      svg.text(x + tile / 2, y - 3, tile >= kWidest ? fmt::format("L{} H{}", l, head) : fmt::format("{}.{}", l, head),
               Anchor::middle, "muted", kSmall);
      // A grid of more cells than the tile has pixels shows the largest weight of each pixel's cells.
      const size_t shown = std::min(p.n, static_cast<size_t>(tile));
      const auto value = [&](size_t t, size_t s) {
        double most = 0;
        for (size_t i = t * p.n / shown; i < (t + 1) * p.n / shown; ++i)
          for (size_t j = s * p.n / shown; j < (s + 1) * p.n / shown; ++j)
            most = std::max(most, values[(head * p.n + i) * p.n + j]);
        return most;
      };
      const double drawn = tile / static_cast<double>(shown);
      for (size_t t = 0; t < shown; ++t)
        for (size_t s = 0; s < shown; ++s)
          if (const int shade = static_cast<int>(std::lround(16 * value(t, s))); shade > 0)
            svg.rect(x + drawn * static_cast<double>(s), y + drawn * static_cast<double>(t), drawn, drawn,
                     "s" + std::to_string(shade));
      svg.frame(x, y, tile, tile, "faint");
      if (names) label_edges(svg, p, x, y, y + tile, cell, kSmall, l == 0, place + 1 == p.heads);
    }
  }
  svg.text(kLeft, below + 12,
           fmt::format("source (key) across, target (query) down; {} is layer 2, head 5", tile >= kWidest ? "L2 H5" : "2.5"),
           Anchor::start, "muted", 11);
  bool ordered = false;  // whether any head has a flatness
  for (const PictureJson& layer : c.picture.at("flatness"))
    for (const PictureJson& flatness : layer) ordered = ordered || !flatness.is_null();
  svg.text(kLeft, below + 28,
           ordered ? "layers across; heads of a layer from flat (top) to spiky" : "layers across; heads of a layer by number",
           Anchor::start, "muted", 11);
  double y = below + 44;
  for (const std::string& line : key) {
    svg.text(kLeft, y, line, Anchor::start, "ink", 11);
    y += 16;
  }
  scale_of_weights(svg, kLeft, y);
  return svg;
}

}  // namespace vitrine
