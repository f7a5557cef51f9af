#pragma once
// Numbers with names, as bars one below the other.
#include <string>
#include <vector>

namespace vitrine {

struct BarChart {
  struct Bar {
    std::string name;
    double value = 0;  // below 0: to the left
    std::string hint;  // shown on hover
  };
  std::string title, description, x_label;
  std::vector<Bar> bars;
};

/// Bars whose number is not finite are left out.
std::string bars_svg(const BarChart& chart);

}  // namespace vitrine
