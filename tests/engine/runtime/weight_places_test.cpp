// Which node's memory weights lie in, for threads on two nodes.
#include "runtime/weight_places.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/load.h"
#include "support/golden.h"

namespace vitrine {
namespace {

// Processors 0 and 1 on node 0, 2 and 3 on node 1.
const std::vector<Cpu> kCpus = {{0, 0, 0}, {1, 0, 1}, {2, 1, 2}, {3, 1, 3}};

std::vector<int> near(const WeightPlaces& places, const std::byte* data, size_t bytes) {
  const std::span<const int> cpus = places.near({data, bytes});
  return {cpus.begin(), cpus.end()};
}

TEST(WeightPlaces, ArePagesNearThoseWhoReadMostOfThem) {
  const std::vector<std::byte> weights(100);
  const std::byte* const w = weights.data();
  const WeightPlaces places({{w + 10, 20, 0}, {w + 30, 20, 1}, {w + 50, 20, 2}, {w + 70, 20, 3}}, kCpus, kCpus);
  EXPECT_EQ(near(places, w + 10, 10), (std::vector<int>{0, 1}));
  EXPECT_EQ(near(places, w + 80, 20), (std::vector<int>{2, 3}));
  EXPECT_EQ(near(places, w + 25, 40), (std::vector<int>{0, 1}));  // 25 bytes of node 0's threads, 15 of node 1's
  EXPECT_EQ(near(places, w + 40, 40), (std::vector<int>{2, 3}));
  EXPECT_EQ(near(places, w, 100), (std::vector<int>{0, 1}));
  EXPECT_TRUE(near(places, w, 10).empty());
  EXPECT_TRUE(near(places, w + 90, 10).empty());
}

TEST(WeightPlaces, OfAModelFollowItsShares) {
  const OpenedModel opened = open_model(Golden::open("llama").model());
  const std::vector<ReadPiece> pieces = read_pieces(*opened.model, {}, 4);
  ASSERT_FALSE(pieces.empty());
  const WeightPlaces places(pieces, kCpus, kCpus);
  for (const ReadPiece& piece : pieces) {
    const std::vector<int> cpus = near(places, piece.data, static_cast<size_t>(piece.bytes));
    EXPECT_NE(std::find(cpus.begin(), cpus.end(), piece.thread), cpus.end());
  }
}

}  // namespace
}  // namespace vitrine
