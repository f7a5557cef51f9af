#include "picture/svg/front.h"

#include <cmath>

#include "picture/svg/svg.h"

namespace vitrine {
namespace {

constexpr const char* kCurveColors[] = {"accent", "accent2", "s8", "d4", "muted"};

constexpr size_t kMostDots = 200;  // points of a curve that are marked; more of them would hide it

const char* color_of(int curve) { return curve < 0 ? "ink" : kCurveColors[static_cast<size_t>(curve) % std::size(kCurveColors)]; }

bool finite(const FrontChart::Point& point) { return std::isfinite(point.x) && std::isfinite(point.y); }

}  // namespace

std::string front_svg(const FrontChart& chart) {
  constexpr double kLeft = 80, kRight = 620, kTop = 30, kBottom = 350, kLegend = 640;
  std::vector<double> xs, ys;
  const auto see = [&](const FrontChart::Point& point) {
    if (!finite(point)) return;
    xs.push_back(point.x);
    ys.push_back(point.y);
  };
  for (const FrontChart::Curve& curve : chart.curves)
    for (const FrontChart::Point& point : curve.points) see(point);
  for (const FrontChart::Mark& mark : chart.marks) see(mark.point);

  double widest = chart.marks.empty() ? 0 : Svg::text_width(chart.marks_name);
  for (const FrontChart::Curve& curve : chart.curves) widest = std::max(widest, Svg::text_width(curve.name));
  Svg svg(kLegend + 40 + widest, kBottom + 50, chart.title, chart.description);
  const SvgScale x = scale_over(xs, kLeft, kRight, chart.log_x, !chart.log_x), y = scale_over(ys, kBottom, kTop, chart.log_y);
  svg.y_axis(y, kLeft, chart.y_label, kRight);
  svg.x_axis(x, kBottom, chart.x_label);
  double row = kTop + 10;
  for (size_t c = 0; c < chart.curves.size(); ++c) {
    const char* const color = color_of(static_cast<int>(c));
    std::vector<std::pair<double, double>> line;
    for (const FrontChart::Point& point : chart.curves[c].points)
      if (finite(point)) line.emplace_back(x.at(point.x), y.at(point.y));
    svg.path(line, color, 2);
    for (const FrontChart::Point& point : chart.curves[c].points)
      if (finite(point) && line.size() <= kMostDots) svg.circle(x.at(point.x), y.at(point.y), 3.5, color, point.hint);
    svg.line(kLegend, row - 4, kLegend + 20, row - 4, color, 2);
    svg.text(kLegend + 28, row, chart.curves[c].name);
    row += 20;
  }
  const auto cross = [&](double at_x, double at_y, const char* color) {
    svg.line(at_x - 5, at_y - 5, at_x + 5, at_y + 5, color, 2);
    svg.line(at_x - 5, at_y + 5, at_x + 5, at_y - 5, color, 2);
  };
  for (const FrontChart::Mark& mark : chart.marks)
    if (finite(mark.point)) {
      const double at_x = x.at(mark.point.x), at_y = y.at(mark.point.y);
      cross(at_x, at_y, color_of(mark.curve));
      svg.circle(at_x, at_y, 1, color_of(mark.curve), mark.point.hint);
    }
  if (!chart.marks.empty()) {
    cross(kLegend + 10, row - 4, "ink");
    svg.text(kLegend + 28, row, chart.marks_name);
  }
  return std::move(svg).finish();
}

}  // namespace vitrine
