// The share of the machine's peak, where other programs use the machine while the peak is measured.
#include "train/recent_steps.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

TEST(RecentSteps, MeasuresAgainAndKeepsTheLargestPeak) {
  int measured = 0;
  const double peaks[] = {1e15, 4e15, 2e15, 2e15, 2e15};
  RecentSteps steps([&] { return peaks[measured++]; });
  EXPECT_EQ(measured, 1);
  const auto first = steps.step(10, 1, 5);  // measured again after it
  EXPECT_EQ(measured, 2);
  ASSERT_TRUE(first.peak_share);
  EXPECT_GT(*first.peak_share, 0);
  EXPECT_LE(*first.peak_share, 1);
  for (int i = 2; i <= 4; ++i) steps.step(10, 1, 5);
  EXPECT_EQ(measured, 4);  // after steps 2 and 4
}

TEST(RecentSteps, SaysNothingWhereStepsAreFasterThanWhatWasMeasured) {
  int measured = 0;
  RecentSteps steps([&] { return static_cast<void>(++measured), 1.0; });
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(steps.step(10, 1e12, 5).peak_share);
  EXPECT_EQ(measured, 4);  // each time
}

}  // namespace
}  // namespace vitrine
