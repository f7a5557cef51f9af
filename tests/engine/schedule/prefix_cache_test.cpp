// Kept sequences: found as far as they begin alike and can go back, given up in the order of their use.
#include "schedule/prefix_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/philox.h"

namespace vitrine {
namespace {

using Ids = std::vector<int32_t>;

class PrefixTree : public testing::Test {
 protected:
  static KvCache cache_of(int64_t window, int64_t state) {
    std::vector<CacheLayer> layers = {{.window = window, .n_kv_heads = 1, .head_dim = 4, .v_dim = 4}};
    if (state > 0) layers.push_back({.state = state});
    return {layers, 100000, 100};
  }
  // A sequence whose values tell its tokens.
  static CacheSequence sequence_of(KvCache& cache, const Ids& ids, int64_t begun = 1) {
    CacheSequence s = cache.sequence();
    s.begin(begun);
    for (size_t at = 0; at < ids.size(); at += 100) {
      const size_t now = std::min<size_t>(100, ids.size() - at);
      s.reserve(static_cast<int64_t>(now));
      for (size_t i = at; i < at + now; ++i)
        std::memcpy(s.values(0, static_cast<int64_t>(i / 256), 0) + i % 256 * 16, &ids[i], 4);
      s.commit(static_cast<int64_t>(now));
    }
    return s;
  }
  static int32_t token_at(const CacheSequence& s, size_t i) {
    int32_t id;
    std::memcpy(&id, s.values(0, static_cast<int64_t>(i / 256), 0) + i % 256 * 16, 4);
    return id;
  }
};

TEST_F(PrefixTree, FindsTheLongestBeginning) {
  KvCache cache = cache_of(kNoWindow, 0);
  PrefixCache tree;
  EXPECT_EQ(tree.find(Ids{1, 2, 3}, 1).length, 0);
  tree.keep(Ids{1, 2, 3, 4}, sequence_of(cache, {1, 2, 3, 4}));
  tree.keep(Ids{1, 2, 9}, sequence_of(cache, {1, 2, 9}));
  EXPECT_EQ(tree.sequences(), 2);
  EXPECT_EQ(tree.tokens(), 5);
  const auto found = [&](const Ids& ids) {
    const PrefixCache::Found f = tree.find(ids, 1);
    EXPECT_EQ(f.sequence.length(), f.length);
    for (size_t i = 0; i < static_cast<size_t>(f.length); ++i) EXPECT_EQ(token_at(f.sequence, i), ids[i]);
    return f.length;
  };
  EXPECT_EQ(found({1, 2, 3, 7}), 3);
  EXPECT_EQ(found({1, 2}), 2);
  EXPECT_EQ(found({1, 2, 9, 9, 9}), 3);
  EXPECT_EQ(found({1, 5}), 1);
  EXPECT_EQ(found({2}), 0);
  tree.keep(Ids{1, 2, 3, 4, 5}, sequence_of(cache, {1, 2, 3, 4, 5}));  // takes the place of the first
  EXPECT_EQ(tree.sequences(), 2);
  EXPECT_EQ(tree.tokens(), 6);
  tree.keep(Ids{1, 2}, sequence_of(cache, {1, 2}));  // others serve
  EXPECT_EQ(tree.sequences(), 2);
  tree.find(Ids{1, 2, 3, 4}, 1);
  EXPECT_TRUE(tree.forget_one());  // the one with 9
  EXPECT_EQ(found({1, 2, 9}), 2);
  EXPECT_EQ(tree.tokens(), 5);
  EXPECT_TRUE(tree.forget_one());
  EXPECT_FALSE(tree.forget_one());
  EXPECT_EQ(tree.tokens(), 0);
  EXPECT_EQ(cache.bytes_in_use(), 0u);
}

TEST_F(PrefixTree, WindowsServeAsFarBackAsTheyReach) {
  KvCache cache = cache_of(50, 0);  // a ring of two pages
  PrefixCache tree;
  Ids text(1200);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(i);
  tree.keep(text, sequence_of(cache, text));
  Ids near(text.begin(), text.begin() + 1100), far(text.begin(), text.begin() + 600);
  near.push_back(-1), far.push_back(-1);
  EXPECT_EQ(tree.find(near, 1).length, 1100);
  const PrefixCache::Found none = tree.find(far, 1);
  EXPECT_EQ(none.length, 0);
  EXPECT_EQ(none.alike, 600);
  const Ids there(text.begin(), text.begin() + 600);
  tree.keep(there, sequence_of(cache, there));
  EXPECT_EQ(tree.find(far, 1).length, 600);
  EXPECT_EQ(tree.sequences(), 2);  // neither serves for the other
}

TEST_F(PrefixTree, RecurrencesServeAtTheirEndAlone) {
  KvCache cache = cache_of(kNoWindow, 4);
  PrefixCache tree;
  tree.keep(Ids{1, 2, 3, 4}, sequence_of(cache, {1, 2, 3, 4}));
  EXPECT_EQ(tree.find(Ids{1, 2, 3, 4, 5}, 1).length, 4);
  const PrefixCache::Found part = tree.find(Ids{1, 2, 3}, 1);
  EXPECT_EQ(part.length, 0);
  EXPECT_EQ(part.alike, 3);
  tree.keep(Ids{1, 2}, sequence_of(cache, {1, 2}));
  EXPECT_EQ(tree.find(Ids{1, 2, 3}, 1).length, 2);
}

TEST_F(PrefixTree, KindsOfFrequenciesDoNotMix) {
  KvCache cache = cache_of(kNoWindow, 0);
  PrefixCache tree(64);
  tree.keep(Ids{1, 2, 3}, sequence_of(cache, {1, 2, 3}, 64));
  EXPECT_EQ(tree.find(Ids{1, 2, 3}, 10).length, 3);
  EXPECT_EQ(tree.find(Ids{1, 2, 3}, 65).length, 0);
  tree.keep(Ids{1, 2, 3}, sequence_of(cache, {1, 2, 3}, 65));
  EXPECT_EQ(tree.find(Ids{1, 2, 3}, 70).length, 3);
}

// Against a list of all that is kept.
TEST_F(PrefixTree, IsWhatAListWouldBe) {
  KvCache cache = cache_of(kNoWindow, 0);
  PrefixCache tree;
  uint64_t drawn = 0;
  const auto draw = [&](uint32_t below) { return philox(9, drawn++, 0)[0] % below; };
  std::set<Ids> beginnings;  // of all that is kept, while nothing is forgotten
  for (int round = 0; round < 3000; ++round) {
    Ids ids(1 + draw(12));
    for (int32_t& id : ids) id = static_cast<int32_t>(draw(3));
    size_t longest = ids.size();
    while (longest > 0 && !beginnings.contains(Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(longest)))) --longest;
    const PrefixCache::Found found = tree.find(ids, 1);
    EXPECT_EQ(found.length, static_cast<int64_t>(longest));
    EXPECT_EQ(found.alike, found.length);
    for (size_t i = 0; i < longest; ++i) EXPECT_EQ(token_at(found.sequence, i), ids[i]);
    if (draw(3) == 0) {
      tree.keep(ids, sequence_of(cache, ids));
      for (size_t n = 1; n <= ids.size(); ++n) beginnings.emplace(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
    }
    EXPECT_EQ(tree.tokens(), static_cast<int64_t>(beginnings.size()));
    if (draw(200) == 0) {
      while (tree.forget_one()) {
      }
      beginnings.clear();
      EXPECT_EQ(cache.bytes_in_use(), found.length > 0 ? cache.bytes_for(1) : 0u);
    }
  }
}

TEST_F(PrefixTree, ScopesShareNothing) {
  KvCache cache = cache_of(kNoWindow, 0);
  PrefixCache tree;
  tree.keep(Ids{1, 2, 3}, sequence_of(cache, {1, 2, 3}), {{}, "alice"});
  EXPECT_EQ(tree.find(Ids{1, 2, 3}, 1, {{}, "alice"}).length, 3);
  for (const char* other : {"", "bob", "alice "}) {
    const PrefixCache::Found found = tree.find(Ids{1, 2, 3}, 1, {{}, other});
    EXPECT_EQ(found.length, 0) << other;
    EXPECT_EQ(found.alike, 0) << other;
  }
  EXPECT_EQ(tree.find(Ids{1, 2, 3}, 1, {{{1, 1.0}}, "alice"}).length, 0);
}

}  // namespace
}  // namespace vitrine
