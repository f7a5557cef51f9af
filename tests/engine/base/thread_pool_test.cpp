#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"

namespace vitrine {
namespace {

TEST(ThreadPool, SaysSoWhenTheSystemGivesFewerThreads) {
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 46), 0);  // no machine has it
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(ThreadPool(3), RunError);
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  pthread_attr_destroy(&before);
  pthread_attr_destroy(&huge);
  EXPECT_EQ(ThreadPool(3).threads(), 3);
}

TEST(ThreadPool, RunsEveryChunkExactlyOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const int64_t chunks : {0, 1, 2, 7, 64, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(chunks));
      pool.run(chunks, [&](int64_t chunk, int thread) {
        ASSERT_LT(thread, threads);
        hits[static_cast<size_t>(chunk)].fetch_add(1);
      });
      for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, ManySmallRegionsSeeEachOthersWrites) {
  ThreadPool pool(4);
  std::vector<int> values(16, 0);
  for (int round = 0; round < 20000; ++round)
    pool.run(16, [&](int64_t chunk, int) { values[static_cast<size_t>(chunk)] = values[(static_cast<size_t>(chunk))] + 1; });
  for (const int value : values) EXPECT_EQ(value, 20000);
}

TEST(ThreadPool, WakesAfterSleeping) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::atomic<int> sum{0};
    pool.run(100, [&](int64_t chunk, int) { sum += static_cast<int>(chunk); });
    EXPECT_EQ(sum.load(), 4950);
  }
}

// Two parts of a pool run regions of their own at the same time; guests come late, sleep, go, and come again.
TEST(ThreadPool, GuestsOfAnotherPoolHelpUntilTheyAreDismissed) {
  constexpr int kOfTeam = 3;
  ThreadPool pool(2 * kOfTeam);
  ThreadPool teams[] = {ThreadPool(ThreadPool::Guests{kOfTeam}), ThreadPool(ThreadPool::Guests{kOfTeam})};
  std::vector<int> values[] = {std::vector<int>(64), std::vector<int>(64)};
  constexpr int kTimes = 20, kRegions = 100;
  for (int time = 0; time < kTimes; ++time) {
    for (ThreadPool& team : teams) team.admit();
    pool.run(2 * kOfTeam, [&](int64_t chunk, int) {
      const auto place = static_cast<int>(chunk) % kOfTeam, half = static_cast<int>(chunk) / kOfTeam;
      if (place > 0) return teams[half].help(place);
      for (int region = 0; region < kRegions; ++region) {
        if (region == 50 && time == 3) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        teams[half].run(64, [&](int64_t i, int thread) {
          ASSERT_LT(thread, kOfTeam);
          ++values[half][static_cast<size_t>(i)];
        });
      }
      teams[half].dismiss();
    });
  }
  for (const std::vector<int>& all : values)
    for (const int value : all) EXPECT_EQ(value, kTimes * kRegions);
}

}  // namespace
}  // namespace vitrine
