// How many prompt tokens go into a step, on machines that are made up.
#include "schedule/pace.h"

#include <gtest/gtest.h>

#include "schedule/queue.h"
#include "schedule/stats.h"

namespace vitrine {
namespace {

// Runs a long prompt beside streams on a machine whose steps take as long as `ms` says; the longest step of all, in ordinary
// ones.
template <class Ms>
double longest_pause(Pace& pace, int64_t streams, int64_t prompt, Ms ms) {
  double longest = 0;
  for (int i = 0; i < 5; ++i) pace.saw(streams, 0, ms(streams, 0));
  while (prompt > 0) {
    const int64_t rows = std::min(prompt, pace.prompt_rows(streams));
    const double took = ms(streams, rows);
    pace.saw(streams, rows, took);
    longest = std::max(longest, took / ms(streams, 0));
    prompt -= rows;
  }
  return longest;
}

TEST(Pace, KeepsStepsBelowThreeOrdinaryOnes) {
  for (const double per_token : {0.01, 0.1, 0.4, 1.0}) {
    Pace pace(0, 512);
    const auto linear = [&](int64_t n, int64_t rows) {
      return 5 + 0.1 * static_cast<double>(n) + per_token * static_cast<double>(rows);
    };
    EXPECT_LE(longest_pause(pace, 16, 4000, linear), 3) << per_token;
    if (per_token < 1) {
      EXPECT_GE(pace.prompt_rows(16), static_cast<int64_t>(std::min(511.0, 0.8 * (Pace::kStretch - 1) * 6.6 / per_token)));
    }
  }
  Pace pace(0, 512);  // more rows go through other kernels, at a price of their own
  EXPECT_LE(longest_pause(pace, 4, 4000,
                          [](int64_t n, int64_t rows) {
                            return 5 + static_cast<double>(n) * 0.1 + (rows > 4 ? 4 : 0) + 0.05 * static_cast<double>(rows);
                          }),
            3);
}

TEST(Pace, RunsAStepWithoutPromptsWhereItDoesNotKnowItsTime) {
  Pace pace(0, 512);
  EXPECT_GT(pace.prompt_rows(0), 0);
  EXPECT_EQ(pace.prompt_rows(4), 0);
  pace.saw(4, 0, 10);
  EXPECT_GT(pace.prompt_rows(4), 0);
  EXPECT_GT(pace.prompt_rows(5), 0);
  EXPECT_EQ(pace.prompt_rows(16), 0);
  for (int i = 0; i < 1000 && pace.prompt_rows(4) > 0; ++i) pace.saw(4, 8, 12);
  EXPECT_EQ(pace.prompt_rows(4), 0);  // and again from time to time
  Pace fixed(7, 512);
  EXPECT_EQ(fixed.prompt_rows(4), 7);
}

TEST(Pace, StepsOfPromptsAloneAreBoundInTime) {
  Pace pace(0, 512);
  pace.saw(0, 64, 640);
  EXPECT_EQ(pace.prompt_rows(0), 64);
  Pace fast(0, 512);
  fast.saw(0, 64, 6);
  EXPECT_EQ(fast.prompt_rows(0), 512);
}

TEST(FairQueue, OwnersTakeTurns) {
  FairQueue<int> queue;
  for (const int item : {1, 2, 3}) queue.push("a", item);
  queue.push("b", 10);
  queue.push("c", 20);
  EXPECT_EQ(queue.size(), 5);
  EXPECT_EQ(queue.size_of("a"), 3);
  EXPECT_EQ(queue.pop(), 1);
  queue.push("b", 11);
  EXPECT_EQ(queue.take_if([](int item) { return item == 20; }), 20);
  EXPECT_EQ(queue.take_if([](int item) { return item == 20; }), std::nullopt);
  EXPECT_EQ(queue.front(), 10);
  EXPECT_EQ(queue.pop(), 10);
  EXPECT_EQ(queue.pop(), 2);
  EXPECT_EQ(queue.pop(), 11);
  EXPECT_EQ(queue.pop(), 3);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.size_of("a"), 0);
}

TEST(Histogram, CountsByUpperBounds) {
  Histogram h({1, 2, 5});
  for (const double value : {0.5, 1.0, 1.5, 5.0, 6.0}) h.add(value);
  EXPECT_EQ(h.counts, (std::vector<uint64_t>{2, 1, 1, 1}));
  EXPECT_EQ(h.count, 5u);
  EXPECT_EQ(h.sum, 14);
}

}  // namespace
}  // namespace vitrine
