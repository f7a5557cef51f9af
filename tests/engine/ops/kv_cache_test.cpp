// Pages of a cache: who holds them, what a sequence's beginning shares, and how far back a sequence can go.
#include "ops/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"

namespace vitrine {
namespace {

const CacheLayer kGlobal{.window = kNoWindow, .n_kv_heads = 1, .head_dim = 4, .v_dim = 4};
const CacheLayer kWindow{.window = 100, .n_kv_heads = 1, .head_dim = 4, .v_dim = 4};
const CacheLayer kRecurrent{.state = 8};

// Rows that write their position into their value.
void add(CacheSequence& sequence, int64_t rows, int layer = 0) {
  for (; rows > 0; rows -= 200) {
    const int64_t now = std::min<int64_t>(rows, 200), from = sequence.length();
    sequence.reserve(now);
    for (int64_t at = from; at < from + now; ++at) {
      const auto value = static_cast<float>(at);
      std::memcpy(sequence.values(layer, at / 256, 0) + at % 256 * 4 * 4, &value, sizeof value);
    }
    sequence.commit(now);
  }
}
float value_at(const CacheSequence& sequence, int64_t at, int layer = 0) {
  float value;
  std::memcpy(&value, sequence.values(layer, at / 256, 0) + at % 256 * 4 * 4, sizeof value);
  return value;
}

TEST(CachePages, AreCountedAndGivenBack) {
  KvCache cache({kGlobal, kWindow, kRecurrent}, 4096, 200);
  EXPECT_EQ(cache.bytes_in_use(), 0u);
  {
    CacheSequence a = cache.sequence();
    const size_t adds = a.bytes_to_add(150);
    add(a, 150);
    EXPECT_EQ(cache.bytes_in_use(), adds);
    EXPECT_EQ(a.bytes_to_add(50),
              cache.bytes_for(1) - cache.bytes_in_use());  // the state that is written beside the one that counts
    add(a, 50);
    EXPECT_EQ(cache.bytes_in_use(), cache.bytes_for(200));
    EXPECT_EQ(a.bytes_to_add(56), 0u);
    EXPECT_GT(a.bytes_to_add(57), 0u);
    const CacheSequence b = a;
    EXPECT_EQ(cache.bytes_in_use(), cache.bytes_for(200));
    EXPECT_GT(a.bytes_to_add(1), 0u);  // what they share is copied
    cache.trim();
    EXPECT_EQ(cache.bytes(), cache.bytes_in_use());
  }
  EXPECT_EQ(cache.bytes_in_use(), 0u);
  EXPECT_GT(cache.bytes(), 0u);
  cache.trim();
  EXPECT_EQ(cache.bytes(), 0u);
}

TEST(CacheBeginning, SharesWhatItNeedsAndNoMore) {
  KvCache cache({kGlobal}, 4096, 200);
  const size_t page = cache.bytes_for(1);
  CacheSequence a = cache.sequence();
  add(a, 1000);
  EXPECT_EQ(cache.bytes_in_use(), 4 * page);
  CacheSequence b = a.beginning(300);
  a = CacheSequence();
  EXPECT_EQ(cache.bytes_in_use(), 2 * page);
  EXPECT_EQ(b.length(), 300);
  CacheSequence c = b.beginning(256);
  add(c, 10);
  EXPECT_EQ(cache.bytes_in_use(), 3 * page);
  EXPECT_EQ(value_at(b, 257), 257);
  CacheSequence d = b;
  add(d, 1);  // the second page was shared: a copy
  EXPECT_EQ(cache.bytes_in_use(), 4 * page);
  for (int64_t at = 0; at < 300; ++at) EXPECT_EQ(value_at(d, at), static_cast<float>(at));
  EXPECT_EQ(c.beginning(0).length(), 0);
}

TEST(CacheBeginning, OfAWindowGoesBackAsFarAsItsRingReaches) {
  KvCache cache({kWindow}, 100000, 200);  // a ring of three pages
  CacheSequence a = cache.sequence();
  add(a, 700);
  EXPECT_TRUE(a.can_go_back(50));
  EXPECT_TRUE(a.can_go_back(300, 60));
  EXPECT_FALSE(a.can_go_back(300, 100));  // the first page is written anew, and position 201 was in it
  CacheSequence b = a.beginning(300);
  EXPECT_EQ(b.length(), 300);
  const size_t held = cache.bytes_in_use();
  add(a, 300);
  EXPECT_GT(cache.bytes_in_use(), held);  // the page that b still needs was not written over
  EXPECT_FALSE(a.can_go_back(300));
  EXPECT_FALSE(a.can_go_back(2000));
  EXPECT_THROW(a.beginning(300), UsageError);
  for (int64_t at = 201; at < 300; ++at) EXPECT_EQ(value_at(b, at), static_cast<float>(at));
  add(b, 500);
  for (int64_t at = 700; at < 800; ++at) EXPECT_EQ(value_at(b, at), static_cast<float>(at));
  for (int64_t at = 900; at < 1000; ++at) EXPECT_EQ(value_at(a, at), static_cast<float>(at));
}

TEST(CacheBeginning, OfARecurrenceIsItsWholeLength) {
  KvCache cache({kGlobal, kRecurrent}, 4096, 200);
  CacheSequence a = cache.sequence();
  add(a, 100);
  EXPECT_TRUE(a.can_go_back(100));
  EXPECT_TRUE(a.can_go_back(0));
  EXPECT_FALSE(a.can_go_back(99));
  EXPECT_THROW(a.beginning(99), UsageError);
  const CacheSequence b = a.beginning(100);
  const float* const state = b.state(1);
  add(a, 1);
  EXPECT_EQ(b.state(1), state);
  EXPECT_NE(a.state(1), state);
}

}  // namespace
}  // namespace vitrine
