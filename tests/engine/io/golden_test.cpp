// The golden folders themselves: every tensor is readable, and the comparison that all tests rely on can fail.
#include "support/golden.h"

#include <cmath>
#include <limits>

namespace vitrine {
namespace {

TEST(Golden, EveryModelHasItsNumbers) {
  const std::vector<std::string> models = Golden::all();
  EXPECT_GE(models.size(), 9u);
  for (const std::string& name : models) {
    const Golden golden = Golden::open(name);
    EXPECT_TRUE(golden.has("short/logits")) << name;
    const GoldenPrompt prompt = golden.prompt("short");
    const GoldenTensor logits = golden["short/logits"];
    EXPECT_EQ(logits.shape.at(1), static_cast<int64_t>(prompt.ids.at(0).size())) << name;
    EXPECT_EQ(logits.at(0).size(), logits.size());
    EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float v) { return std::isfinite(v); }));
    EXPECT_GT(Golden::names_in(golden.train(), "grad/").size(), 10u);
  }
  EXPECT_EQ(golden_tensor(Golden::open("gemma2").sampling(), "input_ids").at(0).at(0).values, (std::vector<float>{307}));
  EXPECT_THROW(Golden::open("gemma2")["short/nothing"], std::out_of_range);
}

TEST(Close, NamesTheWorstElement) {
  const GoldenTensor expected{{2, 3}, {1, 2, 3, 4, 5, 6}};
  std::vector<float> actual = expected.values;
  EXPECT_CLOSE(actual, expected, Tolerance{.abs = 0, .rel = 0});
  actual[1] = 2.25f;
  actual[5] = 7.5f;
  EXPECT_EQ(std::string(close_ranges(actual, expected, Tolerance{.abs = 0.125, .rel = 0}).message()),
            "2 of 6 elements differ; the worst, [1, 2] of [2, 3], is 7.5; expected 6: differs by 1.5, allowed 0.125");
  EXPECT_TRUE(close_ranges(actual, expected, Tolerance{.abs = 1.5, .rel = 0}));
  EXPECT_TRUE(close_ranges(std::span<float>(actual), expected, Tolerance{.abs = 0, .rel = 0.25}));
  actual.pop_back();
  EXPECT_EQ(std::string(close_ranges(actual, expected, Tolerance{}).message()), "has 5 elements; expected 6");
}

TEST(Close, InfinitiesMustBeEqualAndNaNFitsNothing) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  using V = std::vector<float>;
  EXPECT_TRUE(close_ranges(V{-inf, 1}, V{-inf, 1}, Tolerance{}));
  EXPECT_FALSE(close_ranges(V{inf}, V{-inf}, Tolerance{}));
  EXPECT_FALSE(close_ranges(V{1}, V{inf}, Tolerance{}));
  EXPECT_FALSE(close_ranges(V{nan}, V{nan}, Tolerance{}));
  EXPECT_FALSE(close_ranges(V{nan}, V{1}, Tolerance{}));
}

}  // namespace
}  // namespace vitrine
