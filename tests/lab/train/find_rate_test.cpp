// The learning-rate finder: its reading of a curve against numpy's (tests/golden/train/make_find_rate.py), and its search.
#include "train/find_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "io/file_checks.h"
#include "train/run_support.h"
#include "train/train.h"

namespace vitrine {
namespace {

TEST(FindRate, ReadsACurveAsNumpyDoes) {
  for (const Json& told : read_json(std::string(VITRINE_GOLDEN) + "/train/find_rate.json")) {
    SCOPED_TRACE(told.at("name").get<std::string>());
    const auto rates = told.at("rates").get<std::vector<double>>(), losses = told.at("losses").get<std::vector<double>>(),
               smoothed = told.at("smoothed").get<std::vector<double>>();
    RateCurve curve;
    for (size_t i = 0; i < rates.size() && curve.add(rates[i], losses[i]); ++i) {
    }
    curve.read(told.at("steps").get<int64_t>());
    EXPECT_EQ(curve.diverged, told.at("diverged").get<bool>());
    ASSERT_EQ(curve.points.size(), smoothed.size());
    for (size_t i = 0; i < smoothed.size(); ++i) EXPECT_NEAR(curve.points[i].smoothed, smoothed[i], 1e-9 * smoothed[i]);
    ASSERT_EQ(curve.suggestion.has_value(), !told.at("suggestion").is_null());
    const double expected = told.at("suggestion").is_null() ? 0 : told.at("suggestion").get<double>();
    EXPECT_EQ(curve.suggestion.value_or(0), expected);
  }
}

class FindRateRun : public testing::Test {
 protected:
  FindRateRun() {
    small_data(scratch, "data", 200, 1);
    small_data(scratch, "valid", 20, 2);
  }
  Scratch scratch;
};

TEST_F(FindRateRun, TakesTheStepsOfARunAndLeavesNoTrace) {
  const TrainConfig config = parse_train_config(small_config(scratch, scratch / "run", "metrics: {csv: true}\n"), "config.yaml");
  int64_t steps = 0;
  const RateSearch search{.from = 1e-6, .to = 100, .steps = 40};
  const RateCurve curve = find_rate(config, search, [&](const RateCurve::Point&) { return ++steps > 0; });
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
  EXPECT_EQ(steps, static_cast<int64_t>(curve.points.size()));
  ASSERT_GT(curve.points.size(), 10u);
  EXPECT_DOUBLE_EQ(curve.points[0].rate, 1e-6);
  for (size_t i = 1; i < curve.points.size(); ++i)
    EXPECT_NEAR(curve.points[i].rate / curve.points[i - 1].rate, std::pow(1e8, 1.0 / 39), 1e-9);
  ASSERT_TRUE(curve.suggestion);
  EXPECT_GT(*curve.suggestion, 1e-5);
  // The first loss is that of the run's first step.
  train_up_to(config, 1);
  EXPECT_EQ(curve.points[0].loss, metrics_of(scratch / "run")[1].at("loss").get<double>());
  // A folder that holds a run stays as it is.
  const auto before = names_under(scratch / "run");
  find_rate(config, {.from = 1e-4, .to = 1e-2, .steps = 10});
  EXPECT_EQ(names_under(scratch / "run"), before);
  // It ends when it is told to.
  EXPECT_EQ(find_rate(config, search, [](const RateCurve::Point&) { return false; }).points.size(), 1u);
}

}  // namespace
}  // namespace vitrine
