// Drawings of tokens, grids, vectors and surfaces.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/plural.h"
#include "picture/svg/drawings.h"

namespace vitrine {
namespace {

constexpr double kShapesWidth = 640;

// Boxes with labels in rows; returns the y below the last one.
struct Boxes {
  Svg& svg;
  double x = 20, y = 20;
  void add(const std::string& label, const std::string& below, std::string_view color, const std::string& hint) {
    const double width = std::max(Svg::text_width(label), Svg::text_width(below, 10)) + 12;
    if (x + width > kShapesWidth - 20) x = 20, y += 44;
    svg.rect(x, y, width, 22, color, hint);
    svg.frame(x, y, width, 22, "faint");
    svg.text(x + width / 2, y + 15, label, Anchor::middle);
    if (!below.empty()) svg.text(x + width / 2, y + 36, below, Anchor::middle, "muted", 10);
    x += width + 3;
  }
};

// How many rows boxes will take.
double height_of(const std::vector<std::pair<std::string, std::string>>& labels) {
  double x = 20, y = 20;
  for (const auto& [label, below] : labels) {
    const double width = std::max(Svg::text_width(label), Svg::text_width(below, 10)) + 12;
    if (x + width > kShapesWidth - 20) x = 20, y += 44;
    x += width + 3;
  }
  return y + 60;
}

// The part of the square of inputs from −2 to 2 in which exactly the hidden units of `mask` are above zero: the square, cut at
// the line of each unit (Sutherland and Hodgman). Empty where there is none.
std::vector<std::pair<double, double>> region_of(const PictureJson& gate, int mask) {
  std::vector<std::pair<double, double>> polygon = {{-2, -2}, {2, -2}, {2, 2}, {-2, 2}};
  for (size_t unit = 0; unit < 3; ++unit) {
    const double sign = (mask >> unit & 1) != 0 ? 1 : -1, first = gate[0][unit], second = gate[1][unit];
    const auto side = [&](const std::pair<double, double>& at) { return sign * (at.first * first + at.second * second); };
    std::vector<std::pair<double, double>> kept;
    for (size_t i = 0; i < polygon.size(); ++i) {
      const auto& from = polygon[(i + polygon.size() - 1) % polygon.size()];
      const auto& to = polygon[i];
      const double u = side(from), v = side(to);
      if ((u > 0) != (v > 0))
        kept.emplace_back(from.first + (to.first - from.first) * u / (u - v),
                          from.second + (to.second - from.second) * u / (u - v));
      if (v > 0) kept.push_back(to);
    }
    polygon = std::move(kept);
  }
  double area = 0;
  for (size_t i = 0; i < polygon.size(); ++i) {
    const auto& [u, v] = polygon[(i + polygon.size() - 1) % polygon.size()];
    area += (u * polygon[i].second - polygon[i].first * v) / 2;
  }
  return std::abs(area) < 1e-9 ? std::vector<std::pair<double, double>>() : polygon;
}

}  // namespace

Svg svg_of_tokens(const PictureView& c) {
  constexpr size_t kMost = 400;
  std::vector<std::pair<std::string, std::string>> labels;
  for (size_t i = 0; i < std::min(kMost, c.tokens()); ++i)
    labels.emplace_back(c.token_at(i, 24), c.document.at("tokens")[i].at("id").dump());
  const double below = height_of(labels);
  const bool cut = c.tokens() > kMost;
  Svg svg(kShapesWidth, below + (cut ? 20 : 0), c.title(), c.alt());
  if (cut)
    svg.text(20, below + 4, fmt::format("and {} more; the data has all", plural(c.tokens() - kMost, "token")), Anchor::start,
             "muted");
  Boxes boxes{svg};
  for (size_t i = 0; i < labels.size(); ++i) {
    const PictureJson& offsets = c.document.at("tokens")[i].at("offsets");
    const std::string bytes = offsets.is_null() ? "" : fmt::format("bytes {} to {}", offsets[0].dump(), offsets[1].dump());
    boxes.add(labels[i].first, labels[i].second, i % 2 == 0 ? "s2" : "s4", bytes);
  }
  return svg;
}

Svg svg_of_merges(const PictureView& c) {
  constexpr size_t kMostBoxes = 16000;  // of all lines together: about 3 MB
  constexpr double kParts = 150, kRow = 20;
  struct Line {
    std::string name;
    std::vector<std::string> parts;
    size_t marked;
  };
  std::vector<std::string> parts;
  double widest = 0;
  const auto measured = [&](const std::string& part) { return Svg::text_width(part) + 6; };
  const auto add_part = [&](std::string part) {
    widest = std::max(widest, measured(part));
    return part;
  };
  for (const PictureJson& part : c.picture.at("start")) parts.push_back(add_part(shortened(part.at("piece"))));
  const PictureJson& steps = c.picture.at("steps");
  std::vector<Line> lines = {{"start", parts, parts.size()}};
  size_t boxes = parts.size(), shown = 0;
  for (; shown < steps.size() && boxes + parts.size() <= kMostBoxes; ++shown) {
    const PictureJson& step = steps[shown];
    const size_t at = step.at("at");
    parts[at] = add_part(parts[at] + parts[at + 1]);
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    boxes += parts.size();
    lines.push_back({fmt::format("{}: order {}", shown + 1, short_number(step.at("order"))), parts, at});
  }
  // Where each part of a line stands: what does not fit into a row goes on in the next.
  const double right = std::max(kShapesWidth - 20, kParts + widest);
  const auto lay = [&](const Line& line, auto&& place) {
    double x = kParts, y = 0;
    for (size_t i = 0; i < line.parts.size(); ++i) {
      const double width = measured(line.parts[i]);
      if (x > kParts && x + width > right) x = kParts, y += kRow;
      place(i, x, y, width);
      x += width + 2;
    }
    return y + kRow;
  };
  double height = 30;
  for (const Line& line : lines) height += lay(line, [](size_t, double, double, double) {});
  Svg svg(right + 20, height + kRow, c.title(), c.alt());
  double top = 30;
  for (const Line& line : lines) {
    svg.text(20, top, line.name, Anchor::start, "muted", 11);
    top += lay(line, [&](size_t i, double x, double y, double width) {
      svg.rect(x, top + y - 12, width, 16, i == line.marked ? "s5" : "s1");
      svg.text(x + width / 2, top + y, line.parts[i], Anchor::middle, "ink", 11);
    });
  }
  if (steps.size() > shown)
    svg.text(20, top, fmt::format("and {} more; the data has all", plural(steps.size() - shown, "merge")), Anchor::start,
             "muted");
  return svg;
}

Svg svg_of_dot_product(const PictureView& c) {
  Svg svg(kShapesWidth, 300, c.title(), c.alt());
  const double cx = 300, cy = 230, unit = 110;
  for (const PictureJson& v : c.picture.at("vectors")) {
    const double x = v.at("x")[0], y = v.at("x")[1];
    svg.arrow(cx, cy, cx + unit * x, cy - unit * y, "accent");
    const double lift = y == 0 ? -10 : y > 0.9 ? -8 : 4;
    svg.text(cx + unit * x +
                 (x > 0.1    ? 8
                  : x < -0.1 ? -8
                             : 0),
             cy - unit * y + lift, "x·a = " + v.at("label").get<std::string>(),
             x > 0.1    ? Anchor::start
             : x < -0.1 ? Anchor::end
                        : Anchor::middle);
  }
  svg.arrow(cx, cy, cx + unit, cy, "accent2", 4);
  svg.text(cx + unit / 2, cy + 22, "a", Anchor::middle);
  return svg;
}

Svg svg_of_layer_norm(const PictureView& c) {
  Svg svg(kShapesWidth, 340, c.title(), c.alt());
  const auto fan = [&](double cx, const std::string& title,
                       const std::vector<std::tuple<const char*, const char*, const char*>>& vectors) {
    const double cy = 270, unit = 40;
    svg.line(cx - 110, cy, cx + 110, cy, "faint");
    svg.line(cx, 40, cx, cy + 30, "faint");
    svg.text(cx, 24, title, Anchor::middle, "muted");
    for (const auto& [key, label, color] : vectors) {
      const double x = c.picture.at(key)[0], y = c.picture.at(key)[1];
      svg.arrow(cx, cy, cx + unit * x, cy - unit * y, color, 2);
      const std::string words = fmt::format("{} ({}, {})", label, short_number(x), short_number(y));
      if (x < 0 && color == std::string_view("ink")) {  // between other arrows: its name stands beside them
        svg.line(cx + unit * x + 3, cy - unit * y, cx + 30, cy - unit * y, "faint");
        svg.text(cx + 34, cy - unit * y + 4, words, Anchor::start, "ink", 11);
      } else {
        svg.text(cx + unit * x + (x < 0 ? -6 : 6), cy - unit * y - 4, words, x < 0 ? Anchor::end : Anchor::start, "ink", 11);
      }
    }
  };
  fan(190, "LayerNorm",
      {{"x", "x", "muted"},
       {"centered", "x − mean", "accent2"},
       {"scaled", "over σ", "accent"},
       {"layerNorm", "· w + b", "ink"}});
  fan(440, "RMSNorm", {{"x", "x", "muted"}, {"rmsScaled", "over RMS", "accent"}, {"rmsNorm", "· w", "ink"}});
  return svg;
}

Svg svg_of_head_grouping(const PictureView& c) {
  Svg svg(kShapesWidth, 170, c.title(), c.alt());
  const PictureJson& groups = c.picture.at("groups");
  size_t heads = 0;
  for (const PictureJson& group : groups) heads += group.size();
  const double step = std::min(50.0, 600.0 / static_cast<double>(heads)), size = step * 0.7;
  const auto x_of = [&](double head) { return 20 + step * (head + 0.5); };
  svg.text(20, 22, fmt::format("queries ({})", heads), Anchor::start, "muted");
  svg.text(20, 155, fmt::format("keys and values ({}): {}", groups.size(), c.picture.at("kind").get<std::string>()),
           Anchor::start, "muted");
  for (size_t g = 0; g < groups.size(); ++g) {
    const double middle = (x_of(groups[g].front()) + x_of(groups[g].back())) / 2;
    for (const PictureJson& h : groups[g]) {
      const double x = x_of(h);
      svg.line(x, 34 + size, middle, 110, "muted");
      svg.rect(x - size / 2, 34, size, size, "accent", fmt::format("query head {} reads key head {}", h.dump(), g));
    }
    svg.rect(middle - size / 2, 110, size, size / 2, "accent2", fmt::format("key and value head {}", g));
  }
  return svg;
}

Svg svg_of_rope_rotation(const PictureView& c) {
  Svg svg(kShapesWidth, 300, c.title(), c.alt());
  double cx = 170;
  for (const PictureJson& component : c.picture.at("components")) {
    svg.text(cx, 24,
             fmt::format("pair {} of {}: {} per position", component.at("component").dump(), component.at("of").dump(),
                         plural(short_number(component.at("frequency")), "radian")),
             Anchor::middle, "muted");
    int t = 0;
    for (const PictureJson& point : component.at("points")) {
      const double x = point[0], y = point[1];
      svg.arrow(cx, 160, cx + 95 * x, 160 - 95 * y, "accent");
      svg.text(cx + 112 * x, 164 - 112 * y, fmt::format("k{}", t++), Anchor::middle);
    }
    cx += 300;
  }
  return svg;
}

Svg svg_of_mlp_surfaces(const PictureView& c) {
  Svg svg(kShapesWidth, 560, c.title(), c.alt());
  const std::vector<double> values = unpacked(c.picture.at("surfaces")), x = number_list(c.picture.at("x"));
  const size_t n = x.size();
  static constexpr std::array kTitles = {"linear", "ReLU", "ReGLU", "GeGLU"};
  static constexpr std::array kSliceColors = {"d1", "d4", "ink", "d12", "d15"};  // from x[1] = −2 to 2
  const double size = 140, cell = size / static_cast<double>(n);
  for (size_t k = 0; k < 4; ++k) {
    double largest = 1e-12;
    for (size_t i = 0; i < n * n; ++i) largest = std::max(largest, std::abs(values[k * n * n + i]));
    const double left = 20 + 153 * static_cast<double>(k);
    svg.text(left + size / 2, 24, kTitles[k], Anchor::middle, "muted");
    // x[0] to the right, x[1] upwards.
    const auto at = [&](size_t row, size_t column) { return values[k * n * n + column * n + (n - 1 - row)]; };
    svg.heat(
        left, 32, cell, cell, n, n, true, [&](size_t r, size_t q) { return at(r, q) / largest; },
        [&](size_t r, size_t q) { return fmt::format("y = {}", short_number(at(r, q))); });
    std::vector<double> all;
    for (const PictureJson& slice : c.picture.at("slices")[k])
      for (const double v : number_list(slice)) all.push_back(v);
    const SvgScale across{-2, 2, left, left + size}, up = scale_over(all, 360, 230, false, true);
    svg.line(left, up.at(0), left + size, up.at(0), "faint");
    size_t s = 0;
    for (const PictureJson& slice : c.picture.at("slices")[k]) {
      std::vector<std::pair<double, double>> points;
      const std::vector<double> y = number_list(slice);
      for (size_t i = 0; i < n; ++i) points.emplace_back(across.at(x[i]), up.at(y[i]));
      svg.path(points, kSliceColors[s]);
      ++s;
    }
  }
  svg.text(20, 200, "y[0] over x[0] (across) and x[1] (up), each from −2 to 2; orange below 0, blue above", Anchor::start,
           "muted");
  svg.text(20, 382, "slices of them at x[1] = −2 and −1 (orange), 0 (ink), 1 and 2 (blue)", Anchor::start, "muted");
  svg.text(20, 410, "the six regions: which hidden units are above zero, and what y[0] is there", Anchor::start, "muted");
  const SvgScale across{-2, 2, 20, 150}, up{-2, 2, 548, 418};
  size_t row = 0;
  for (const PictureJson& piece : c.picture.at("pieces")) {
    const int mask = piece.at("mask");
    std::vector<std::pair<double, double>> region = region_of(c.picture.at("weights").at("gate"), mask);
    double cx = 0, cy = 0;
    for (auto& [a, b] : region) a = across.at(a), b = up.at(b), cx += a, cy += b;
    const auto corners = static_cast<double>(std::max<size_t>(region.size(), 1));
    const std::string color = "c" + std::to_string(mask), on = piece.at("on"), units = piece.at("units");
    svg.polygon(region, color, fmt::format("units above zero: {}; y[0] = {}", units, piece.at("relu").get<std::string>()));
    svg.text(cx / corners, cy / corners + 4, on, Anchor::middle, "onlight", 10);
    const double y = 432 + 20 * static_cast<double>(row++);
    svg.rect(176, y - 10, 12, 12, color, "");
    svg.text(196, y, fmt::format("{} ({})", on, units), Anchor::start, "ink", 11);
    svg.text(286, y, piece.at("relu").get<std::string>(), Anchor::start, "ink", 11);
    svg.text(440, y, piece.at("reglu").get<std::string>(), Anchor::start, "ink", 11);
  }
  svg.text(286, 552, "ReLU", Anchor::start, "muted", 11);
  svg.text(440, 552, "ReGLU", Anchor::start, "muted", 11);
  return svg;
}

Svg svg_of_next_tokens(const PictureView& c) {
  const PictureJson &ids = c.picture.at("ids"), &probs = c.picture.at("probs");
  const size_t shown = std::min<size_t>(ids.size(), 24), first = ids.size() - shown, k = c.picture.at("k");
  const double column = 104;
  Svg svg(40 + column * static_cast<double>(shown), 50 + 18 * static_cast<double>(k), c.title(), c.alt());
  for (size_t i = 0; i < shown; ++i) {
    const double x = 20 + column * static_cast<double>(i);
    svg.text(x, 24, c.token_at(first + i, 12), Anchor::start, "ink", 13);
    for (size_t j = 0; j < ids[first + i].size(); ++j) {
      const double p = probs[first + i][j], y = 34 + 18 * static_cast<double>(j);
      const bool came = first + i + 1 < c.tokens() && ids[first + i][j] == c.document.at("tokens")[first + i + 1].at("id");
      svg.rect(x, y, (column - 8) * p, 15, "s4", fmt::format("{}: {:.4f}", c.spelling(ids[first + i][j], 40), p));
      svg.text(x + 3, y + 12, c.spelling(ids[first + i][j], 9), Anchor::start, came ? "accent2" : "ink", 11);
      svg.text(x + column - 10, y + 12, fmt::format("{:.0f}", 100 * p), Anchor::end, "muted", 10);
    }
  }
  return svg;
}

Svg svg_of_logit_lens(const PictureView& c) {
  const PictureJson &ids = c.picture.at("ids"), &probs = c.picture.at("probs"), &depths = c.picture.at("depths");
  const double column = 74, row = 20;
  const size_t rows = ids.size(), columns = depths.size();
  Svg svg(130 + column * static_cast<double>(columns), 60 + row * static_cast<double>(rows), c.title(), c.alt());
  for (size_t d = 0; d < columns; ++d)
    svg.text(120 + column * (static_cast<double>(d) + 0.5), 22, depths[d].get<std::string>(), Anchor::middle, "muted", 11);
  for (size_t r = 0; r < rows; ++r) {
    const double y = 32 + row * static_cast<double>(r);
    svg.text(112, y + 14, c.token_at(c.picture.at("positions")[r], 12), Anchor::end);
    for (size_t d = 0; d < columns; ++d) {
      const double p = probs[r][d][0], x = 120 + column * static_cast<double>(d);
      svg.rect(x, y, column - 2, row - 2, "s" + std::to_string(static_cast<int>(std::lround(8 * p))),
               fmt::format("{}: {:.4f}", c.spelling(ids[r][d][0], 40), p));
      svg.text(x + (column - 2) / 2, y + 13, c.spelling(ids[r][d][0], 8), Anchor::middle, "ink", 11);
    }
  }
  return svg;
}

}  // namespace vitrine
