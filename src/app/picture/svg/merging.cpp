// Drawings of merging: vectors in the plane that they span.
#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "picture/svg/drawings.h"

namespace vitrine {
namespace {

constexpr double kMergeWidth = 640;

using Spot = std::pair<double, double>;
Spot spot(const PictureJson& point) { return {point[0].get<double>(), point[1].get<double>()}; }

// A plane with its origin inside a box, all of `points` in view at one scale.
struct PlaneBox {
  double x = 0, y = 0, unit = 1;  // pixels of the origin and of 1
  PlaneBox(const std::vector<Spot>& points, double left, double top, double width, double height) {
    double low = 0, high = 1e-12, up = 1e-12;
    for (const auto& [px, py] : points) low = std::min(low, px), high = std::max(high, px), up = std::max(up, py);
    unit = std::min(width / (high - low), height / up);
    x = left - low * unit + (width - (high - low) * unit) / 2;
    y = top + height;
  }
  Spot at(const Spot& p) const { return {x + p.first * unit, y - p.second * unit}; }
  void arrow(Svg& svg, const Spot& to, std::string_view color, double width = 2) const {
    svg.arrow(x, y, at(to).first, at(to).second, color, width);
  }
  void path(Svg& svg, const std::vector<Spot>& points, std::string_view color) const {
    std::vector<Spot> drawn;
    for (const Spot& p : points) drawn.push_back(at(p));
    svg.path(drawn, color, 2);
  }
  // A name beyond the end of an arrow from the origin.
  void name(Svg& svg, const Spot& of, const std::string& words) const {
    const auto [px, py] = at(of);
    const double dx = px - x, dy = py - y, out = std::max(1.0, std::hypot(dx, dy));
    svg.text(px + 8 * dx / out, py + 12 * dy / out + (dy > -4 ? 16 : 0), words,
             dx > 0.35 * out    ? Anchor::start
             : dx < -0.35 * out ? Anchor::end
                                : Anchor::middle);
  }
};

std::vector<Spot> spots(const PictureJson& list) {
  std::vector<Spot> points;
  for (const PictureJson& point : list) points.push_back(spot(point));
  return points;
}

std::vector<Spot> over(const SvgScale& across, const SvgScale& up, const std::vector<double>& x, const std::vector<double>& y) {
  std::vector<Spot> points;
  for (size_t i = 0; i < x.size(); ++i) points.emplace_back(across.at(x[i]), up.at(y[i]));
  return points;
}

}  // namespace

Svg svg_of_interpolation(const PictureView& c) {
  constexpr double kRow = 250;
  const PictureJson& pairs = c.picture.at("pairs");
  const std::vector<double> t = number_list(c.picture.at("t"));
  Svg svg(kMergeWidth, kRow * static_cast<double>(pairs.size()) + 14, c.title(), c.alt());
  double top = 0;
  for (const PictureJson& pair : pairs) {
    const Spot a = spot(pair.at("a")), b = spot(pair.at("b"));
    const std::vector<Spot> arc = spots(pair.at("arc"));
    std::vector<Spot> seen = arc;
    seen.insert(seen.end(), {a, b});
    const PlaneBox plane(seen, 60, top + 52, 190, 150);
    svg.text(20, top + 24,
             fmt::format("rows {} and {}: {} degrees apart", pair.at("rows")[0].dump(), pair.at("rows")[1].dump(),
                         short_number(pair.at("angle").get<double>() * 180 / std::numbers::pi)),
             Anchor::start, "muted");
    plane.path(svg, {a, b}, "accent2");
    plane.path(svg, arc, "accent");
    plane.arrow(svg, a, "ink");
    plane.arrow(svg, b, "ink");
    plane.name(svg, a, "a");
    plane.name(svg, b, "b");
    for (const size_t i : {t.size() / 4, t.size() / 2, 3 * (t.size() / 4)}) {
      const Spot on_line = {a.first + t[i] * (b.first - a.first), a.second + t[i] * (b.second - a.second)};
      const auto dot = [&](const Spot& p, std::string_view color, const char* kind, const char* lengths) {
        svg.circle(plane.at(p).first, plane.at(p).second, 3, color,
                   fmt::format("{}, t = {}: length {}", kind, short_number(t[i]), short_number(pair.at(lengths)[i])));
      };
      dot(on_line, "accent2", "linear", "linearLengths");
      dot(arc[i], "accent", "SLERP", "slerpLengths");
    }
    const std::vector<double> linear = number_list(pair.at("linearLengths")), spherical = number_list(pair.at("slerpLengths"));
    std::vector<double> all = linear;
    all.insert(all.end(), spherical.begin(), spherical.end());
    const SvgScale across{0, 1, 380, 560}, up = scale_over(all, top + 200, top + 36, false, true);
    svg.y_axis(up, 380, "length", 560);
    svg.x_axis(across, top + 200, "t");
    svg.path(over(across, up, t, linear), "accent2", 2);
    svg.path(over(across, up, t, spherical), "accent", 2);
    double lower = up.at(linear[t.size() / 2]), upper = up.at(spherical[t.size() / 2]);
    if (lower - upper < 14) upper = lower - 14;
    svg.text(566, lower + 4, "linear");
    svg.text(566, upper + 4, "SLERP");
    top += kRow;
  }
  return svg;
}

Svg svg_of_task_vectors(const PictureView& c) {
  const PictureJson& p = c.picture;
  Svg svg(kMergeWidth, 330, c.title(), c.alt());
  const Spot a = spot(p.at("a")), b = spot(p.at("b")), average = spot(p.at("average")), merged = spot(p.at("slerp"));
  const std::vector<Spot> arc = spots(p.at("arc"));
  std::vector<Spot> seen = arc;
  seen.insert(seen.end(), {a, b});
  const PlaneBox plane(seen, 90, 50, 220, 220);
  plane.path(svg, {a, b}, "accent2");
  plane.path(svg, arc, "accent");
  plane.arrow(svg, a, "ink");
  plane.arrow(svg, b, "ink");
  plane.path(svg, {{0, 0}, merged}, "accent");
  for (const PictureJson& eta : p.at("liti").at("eta")) {
    const double at = eta.get<double>();
    const Spot on_line = plane.at({at * merged.first, at * merged.second});
    svg.circle(on_line.first, on_line.second, 2.5, "accent", fmt::format("LITI, η = {}", short_number(at)));
  }
  svg.circle(plane.at(average).first, plane.at(average).second, 4, "accent2", "the average of the task vectors");
  plane.name(svg, a, "θ₁");
  plane.name(svg, b, "θ₂");
  svg.text(plane.x - 6, plane.y + 18, "θ₀", Anchor::end);
  double y = 80;
  const auto line = [&](const std::string& name, const PictureJson& value, std::string_view color) {
    svg.circle(380, y - 4, 4, color);
    svg.text(392, y, name);
    svg.text(610, y, short_number(value), Anchor::end, "muted");
    y += 24;
  };
  svg.text(610, y - 26, "distance from θ₀", Anchor::end, "muted", 11);
  line("θ₁", p.at("taskLengths")[0], "ink");
  line("θ₂", p.at("taskLengths")[1], "ink");
  line("average", p.at("averageLength"), "accent2");
  line("SLERP, η = 1", p.at("slerpLength"), "accent");
  line("LITI, η = 0.5", p.at("liti").at("distances")[5], "accent");
  svg.text(372, y + 8,
           fmt::format("task vectors {} degrees apart", short_number(p.at("taskAngle").get<double>() * 180 / std::numbers::pi)),
           Anchor::start, "muted", 11);
  return svg;
}

}  // namespace vitrine
