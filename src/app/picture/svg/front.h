#pragma once
// Curves of points of one measure against another, with single points beside them: a front of loss against distance.
#include <string>
#include <utility>
#include <vector>

namespace vitrine {

struct FrontChart {
  struct Point {
    double x = 0, y = 0;
    std::string hint;  // shown on hover
  };
  struct Curve {
    std::string name;  // in the legend
    std::vector<Point> points;
  };
  /// A point of its own; `curve`: whose color it has, -1: none's.
  struct Mark {
    Point point;
    int curve = -1;
  };
  std::string title, description, x_label, y_label;
  bool log_x = false, log_y = false;  // then every number there is above 0
  std::vector<Curve> curves;
  std::vector<Mark> marks;
  std::string marks_name;  // in the legend
};

/// Points that are not finite are left out.
std::string front_svg(const FrontChart& chart);

}  // namespace vitrine
