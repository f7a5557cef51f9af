// Fronts of few points, as `vitrine warp` draws them after the initial model: every number is a place on the page.
#include "picture/svg/front.h"

#include <gtest/gtest.h>

#include <cmath>

#include "picture/svg/svg.h"

namespace vitrine {
namespace {

TEST(ScaleOver, HasALengthWhateverTheNumbers) {
  for (const std::vector<double>& values : {std::vector<double>{}, {0}, {0, 0}, {3}, {-3}, {-1, 0}, {0, 2}})
    for (const bool with_zero : {false, true}) {
      const SvgScale scale = scale_over(values, 80, 620, false, with_zero);
      EXPECT_LT(scale.low, scale.high);
      EXPECT_FALSE(scale.ticks().empty());
      for (const double value : values) EXPECT_TRUE(scale.at(value) >= 80 && scale.at(value) <= 620) << value;
    }
}

TEST(Front, DrawsOnePointAtZero) {
  FrontChart chart;
  chart.marks.push_back({{0, 3.5, "initial model"}, -1});
  chart.marks_name = "initial model";
  FrontChart swept;
  swept.curves.push_back({"liti", {{0, 3.5, "eta 0"}}});
  for (const FrontChart& each : {chart, swept}) {
    const std::string svg = front_svg(each);
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
  }
}

}  // namespace
}  // namespace vitrine
