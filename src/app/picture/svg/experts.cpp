// Drawings of routing: the experts of every token in all layers or in one, and the load of the experts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "picture/svg/drawings.h"

namespace vitrine {
namespace {

constexpr double kExpertsLeft = 110, kExpertsTop = 48, kExpertsNarrow = 640, kExpertsWidest = 1200;

// The tokens that a drawing has room for, the last ones.
struct Shown {
  const PictureView& c;
  size_t first = c.picture.at("first");  // of the data
  size_t kept = c.tokens() - first;      // in the data
  size_t begin = 0;                      // of the drawing, in the data
  size_t n() const { return kept - begin; }
  size_t position(size_t i) const { return first + begin + i; }
  std::string name(size_t i) const { return c.token_at(position(i)); }
};

std::vector<double> numbers_of(const PictureJson& layer, const char* key) {
  return layer.at(key).is_null() ? std::vector<double>() : unpacked(layer.at(key));
}

// [token, expert], 0 where an expert was not chosen.
std::vector<double> spread(const PictureView& c, const PictureJson& layer, size_t tokens) {
  const size_t count = c.picture.at("count"), per_token = c.picture.at("perToken");
  const std::vector<double> chosen = unpacked(layer.at("chosen")), weights = unpacked(layer.at("weights"));
  std::vector<double> cells(tokens * count);
  for (size_t i = 0; i < chosen.size(); ++i) cells[i / per_token * count + static_cast<size_t>(chosen[i])] = weights[i];
  return cells;
}

// The end of the scale: shares among many experts are small.
double largest_of(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

double longest_name(const Shown& shown) {
  double longest = 0;
  for (size_t i = 0; i < shown.n(); ++i) longest = std::max(longest, Svg::text_width(shown.name(i), 11));
  return longest;
}

// Every layer a band of rows, the heaviest choice on top: numbers of experts on the color of their weights.
Svg all_layers(const PictureView& c) {
  constexpr double kRow = 15, kGap = 6, kNumber = 24 /* "127" */, kName = 12;
  constexpr size_t kMostRows = 4;
  const PictureJson& layers = c.picture.at("layers");
  const size_t per_token = c.picture.at("perToken"), rows = std::min(per_token, kMostRows);
  double most = 1e-30;
  for (const PictureJson& layer : layers) most = std::max(most, largest_of(unpacked(layer.at("weights"))));
  Shown shown{c};
  const auto room = static_cast<size_t>((kExpertsWidest - kExpertsLeft - 20) / 2);
  shown.begin = shown.kept - std::min(shown.kept, room);
  const double cell = std::clamp((kExpertsWidest - kExpertsLeft - 20) / static_cast<double>(shown.n()), 2.0, kNumber);
  const double wide = cell * static_cast<double>(shown.n()), band = kRow * static_cast<double>(rows) + kGap;
  const double bottom = kExpertsTop + band * static_cast<double>(layers.size());
  const double below = cell >= kName ? longest_name(shown) + 12 : 20;
  Svg svg(std::max(kExpertsNarrow, kExpertsLeft + wide + 20), bottom + below + 40, c.title(), c.alt());
  svg.text(20, 22, "Layers down, tokens across: the number of each expert that ran", Anchor::start, "muted");
  svg.text(20, 38, rows < per_token ? fmt::format("the {} heaviest of {}, heaviest on top", rows, per_token) : "heaviest on top",
           Anchor::start, "muted", 11);
  for (size_t l = 0; l < layers.size(); ++l) {
    const std::vector<double> chosen = unpacked(layers[l].at("chosen")), weights = unpacked(layers[l].at("weights"));
    const auto at = [&](size_t row, size_t i) { return (shown.begin + i) * per_token + row; };
    const double y = kExpertsTop + band * static_cast<double>(l);
    svg.text(kExpertsLeft - 8, y + kRow - 3, fmt::format("layer {}", layers[l].at("layer").get<int64_t>()), Anchor::end, "ink",
             11);
    svg.heat(
        kExpertsLeft, y, cell, kRow, rows, shown.n(), false, [&](size_t row, size_t i) { return weights[at(row, i)] / most; },
        [&](size_t row, size_t i) {
          return fmt::format("layer {}, {} (position {}): expert {}, weight {:.4f}", layers[l].at("layer").get<int64_t>(),
                             shown.name(i), shown.position(i), chosen[at(row, i)], weights[at(row, i)]);
        });
    for (size_t row = 0; row < rows && cell >= kNumber; ++row)
      for (size_t i = 0; i < shown.n(); ++i)
        svg.text(kExpertsLeft + cell * (static_cast<double>(i) + 0.5), y + kRow * static_cast<double>(row) + 11.5,
                 fmt::format("{}", chosen[at(row, i)]), Anchor::middle, weights[at(row, i)] / most > 0.58 ? "s0" : "ink", 10);
  }
  if (cell >= kName) {
    for (size_t i = 0; i < shown.n(); ++i)
      svg.text_up(kExpertsLeft + cell * (static_cast<double>(i) + 0.5) + 4, bottom + 4, shown.name(i), "ink", Anchor::end, 11);
  } else {
    svg.text(kExpertsLeft, bottom + 14, fmt::format("positions {} to {}", shown.position(0), shown.position(shown.n() - 1)),
             Anchor::start, "muted", 11);
  }
  svg.legend(kExpertsLeft, bottom + below, "0", short_number(most), false);
  svg.text(kExpertsLeft + 146, bottom + below + 9, "weight", Anchor::start, "muted", 11);
  return svg;
}

// Weights of one layer, and below them the router's shares: tokens down, experts across.
Svg one_layer(const PictureView& c, const PictureJson& layer) {
  constexpr double kRow = 16;
  constexpr size_t kMostTokens = 64;
  const size_t count = c.picture.at("count");
  Shown shown{c};
  shown.begin = shown.kept - std::min(shown.kept, kMostTokens);
  struct Panel {
    std::string what;
    std::vector<double> cells;
  };
  std::vector<Panel> panels = {{"weight", spread(c, layer, shown.kept)}};
  if (std::vector<double> p = numbers_of(layer, "probabilities"); !p.empty())
    panels.push_back({c.picture.at("share"), std::move(p)});
  double most = 1e-30;
  for (const Panel& panel : panels) most = std::max(most, largest_of(panel.cells));
  const double cell = std::clamp((kExpertsNarrow - kExpertsLeft - 20) / static_cast<double>(count), 7.0, 32.0);
  const double high = kRow * static_cast<double>(shown.n()), down = high + 62, wide = cell * static_cast<double>(count);
  const int64_t number = layer.at("layer");
  Svg svg(std::max(kExpertsNarrow, kExpertsLeft + wide + 20), 20 + down * static_cast<double>(panels.size()) + 36,
          fmt::format("{}: layer {}", c.title(), number), c.alt());
  const size_t step = std::max<size_t>(1, static_cast<size_t>(std::ceil(26 / cell)));
  double y = 20;
  for (const Panel& panel : panels) {
    svg.text(kExpertsLeft, y + 2, fmt::format("layer {}: {} of each expert (across) for each token (down)", number, panel.what),
             Anchor::start, "muted");
    for (size_t e = 0; e < count; e += step)
      svg.text(kExpertsLeft + cell * (static_cast<double>(e) + 0.5), y + 18, std::to_string(e), Anchor::middle, "muted", 11);
    for (size_t i = 0; i < shown.n(); ++i)
      svg.text(kExpertsLeft - 8, y + 24 + kRow * static_cast<double>(i) + 12, shown.name(i), Anchor::end, "ink", 11);
    const auto value = [&](size_t i, size_t e) { return panel.cells[(shown.begin + i) * count + e]; };
    svg.heat(
        kExpertsLeft, y + 24, cell, kRow, shown.n(), count, false, [&](size_t i, size_t e) { return value(i, e) / most; },
        [&](size_t i, size_t e) {
          return fmt::format("{} (position {}), expert {}: {} {:.4f}", shown.name(i), shown.position(i), e, panel.what,
                             value(i, e));
        });
    svg.frame(kExpertsLeft, y + 24, wide, high, "faint");
    y += down;
  }
  svg.legend(kExpertsLeft, y - 14, "0", short_number(most), false);
  return svg;
}

const PictureJson& layer_of(const PictureView& c) {
  for (const PictureJson& layer : c.picture.at("layers"))
    if (layer.at("layer") == *c.options.layer) return layer;
  return c.picture.at("layers").at(0);
}

}  // namespace

Svg svg_of_experts(const PictureView& c) { return c.options.layer ? one_layer(c, layer_of(c)) : all_layers(c); }

}  // namespace vitrine
