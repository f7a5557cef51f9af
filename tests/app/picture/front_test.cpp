// Fronts of few points, as `vitrine warp` draws them after the initial model: every number is a place on the page.
#include "picture/svg/front.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

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

// The colors of a class, one for each scheme: #rrggbb.
std::vector<std::string> colors_of(const std::string& svg, const std::string& name) {
  std::vector<std::string> found;
  const std::string rule = "." + name + "{color:#";
  for (size_t at = svg.find(rule); at != std::string::npos; at = svg.find(rule, at + 1))
    found.push_back(svg.substr(at + rule.size(), 6));
  return found;
}

double distance_of(const std::string& a, const std::string& b) {
  double sum = 0;
  for (size_t i = 0; i < 6; i += 2)
    sum += std::pow(std::stoi(a.substr(i, 2), nullptr, 16) - std::stoi(b.substr(i, 2), nullptr, 16), 2);
  return std::sqrt(sum);
}

TEST(Front, CurvesHaveColorsThatCanBeToldApart) {
  FrontChart chart;
  for (int i = 0; i < 5; ++i) chart.curves.push_back({"curve", {{1.0 + i, 2, ""}}});
  const std::string svg = front_svg(chart);
  std::vector<std::vector<std::string>> colors;
  for (size_t at = svg.find("<circle class=\""); at != std::string::npos; at = svg.find("<circle class=\"", at + 1)) {
    const size_t begin = svg.find('"', at) + 1;
    colors.push_back(colors_of(svg, svg.substr(begin, svg.find('"', begin) - begin)));
  }
  ASSERT_EQ(colors.size(), 5u);
  for (size_t a = 0; a < colors.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      ASSERT_EQ(colors[a].size(), 2u);  // on light and on dark
      for (size_t scheme = 0; scheme < 2; ++scheme)
        EXPECT_GT(distance_of(colors[a][scheme], colors[b][scheme]), 50) << a << " " << b;
    }
}

}  // namespace
}  // namespace vitrine
