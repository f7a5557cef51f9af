#include "picture/svg/bars.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "picture/svg/svg.h"

namespace vitrine {

std::string bars_svg(const BarChart& chart) {
  constexpr double kTop = 34, kStep = 18, kBarWidth = 360, kGap = 8;
  std::vector<const BarChart::Bar*> bars;
  std::vector<double> values = {0};
  double widest = 20;
  for (const BarChart::Bar& bar : chart.bars) {
    if (!std::isfinite(bar.value)) continue;
    bars.push_back(&bar);
    values.push_back(bar.value);
    widest = std::max(widest, Svg::text_width(bar.name));
  }
  const double left = widest + 24, bottom = kTop + kStep * static_cast<double>(bars.size());
  Svg svg(left + kBarWidth + 30, bottom + 50, chart.title, chart.description);
  svg.text(12, 18, chart.title, Anchor::start, "ink", 13);
  const SvgScale x = scale_over(values, left, left + kBarWidth, false, true);
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = kTop + kStep * static_cast<double>(i), from = x.at(std::min(bars[i]->value, 0.0)),
                 to = x.at(std::max(bars[i]->value, 0.0));
    svg.text(left - kGap, y + 12, bars[i]->name, Anchor::end);
    svg.rect(from, y + 2, std::max(to - from, 0.5), kStep - 4, bars[i]->value < 0 ? "accent2" : "accent", bars[i]->hint);
  }
  svg.line(x.at(0), kTop, x.at(0), bottom, "muted");
  svg.x_axis(x, bottom, chart.x_label);
  return std::move(svg).finish();
}

}  // namespace vitrine
