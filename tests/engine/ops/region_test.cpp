// Regions as a dry run records them: shares of threads, and where their weights lie.
#include "ops/region.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/dry_run.h"
#include "ops/linear.h"
#include "ops/rows.h"

namespace vitrine {
namespace {

TEST(Regions, SharesAreThoseOfThePool) {
  for (const int threads : {2, 3, 7, 64}) {
    RegionRecord region;
    region.shared = true;
    constexpr int64_t kTasks = 50;
    for (int64_t i = 0; i < kTasks; ++i) region.add({.bytes = 1 + i % 3, .multiply_adds = i});
    const std::vector<TaskCost> shares = region.by_thread(threads);
    ASSERT_EQ(std::ssize(shares), threads);
    for (int thread = 0; thread < threads; ++thread) {
      TaskCost sum;
      const ThreadPool::Chunks own = ThreadPool::share(kTasks, thread, threads);
      for (int64_t i = own.begin; i < own.end; ++i) sum = sum + TaskCost{.bytes = 1 + i % 3, .multiply_adds = i};
      EXPECT_EQ(shares[static_cast<size_t>(thread)].bytes, sum.bytes);
      EXPECT_EQ(shares[static_cast<size_t>(thread)].multiply_adds, sum.multiply_adds);
    }
  }
}

TEST(Regions, AreTheCallersAloneWhereNothingIsShared) {
  RegionRecord region;
  for (int i = 0; i < 5; ++i) region.add({.elements = 2});
  EXPECT_FALSE(region.enters_pool(4));
  EXPECT_EQ(region.by_thread(4)[0].elements, 10);
  EXPECT_EQ(region.by_thread(4)[3].elements, 0);
  region.shared = true;
  EXPECT_TRUE(region.enters_pool(4));
  EXPECT_FALSE(region.enters_pool(1));
}

TEST(Regions, NeighborsOfOneCostAreOneRun) {
  std::byte weights[64];
  RegionRecord region;
  region.shared = true;
  for (int i = 0; i < 4; ++i) region.add({.data = weights + 8 * i, .bytes = 8});
  region.add({.data = weights + 40, .bytes = 8});  // behind a gap
  region.add({.data = weights + 48, .bytes = 4});
  ASSERT_EQ(region.runs.size(), 3u);
  EXPECT_EQ(region.tasks(), 6);
  std::vector<std::pair<int, std::ptrdiff_t>> pieces;
  std::vector<int64_t> bytes;
  region.each_piece(2, [&](int thread, const std::byte* data, int64_t n) {
    pieces.emplace_back(thread, data - weights);
    bytes.push_back(n);
  });
  EXPECT_EQ(pieces, (std::vector<std::pair<int, std::ptrdiff_t>>{{0, 0}, {1, 24}, {1, 40}, {1, 48}}));
  EXPECT_EQ(bytes, (std::vector<int64_t>{24, 8, 8, 4}));
}

// The tasks that a dry run counts are those of a run.
TEST(Regions, OfADryRunAreThoseOfARun) {
  ThreadPool pool(ThreadPool::Guests{3});
  for (const int64_t count : {1, 100, 40000}) {
    DryRun dry(false, true);
    Context recording(pool, dry), running(pool);
    const auto ops = [&](Context& ctx, auto&& f) { parallel_for(ctx, count, 3, f); };
    ops(recording, [](int64_t, int64_t) { FAIL() << "a dry run computes nothing"; });
    dry.add(recording, {.op = "nothing"});
    int64_t calls = 0;
    ops(running, [&](int64_t, int64_t) { ++calls; });
    const std::vector<OpRecord> recorded = std::move(dry).take_ops();
    ASSERT_EQ(recorded[0].regions.size(), 1u);
    EXPECT_EQ(recorded[0].regions[0].tasks(), calls);
    EXPECT_EQ(recorded[0].regions[0].shared, calls > 1);
    EXPECT_EQ(recorded[0].regions[0].total().elements, 3 * count);
  }
}

}  // namespace
}  // namespace vitrine
