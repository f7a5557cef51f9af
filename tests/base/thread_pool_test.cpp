#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace vitrine {
namespace {

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

}  // namespace
}  // namespace vitrine
