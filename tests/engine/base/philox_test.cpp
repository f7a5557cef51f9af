#include "base/philox.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NormalNumbersHaveTheirMoments) {
  constexpr uint64_t kBlocks = 50000;
  double sums[5] = {};
  for (uint64_t block = 0; block < kBlocks; ++block)
    for (const double x : normals_from(philox(7, block, 0))) {
      double power = 1;
      for (double& sum : sums) sum += power, power *= x;
    }
  const double n = 4 * kBlocks, moments[5] = {1, 0, 1, 0, 3};
  EXPECT_EQ(sums[0], n);
  for (int i = 1; i < 5; ++i) EXPECT_NEAR(sums[i] / n, moments[i], 0.1) << i;
  // The largest and the least word: u is never 0, whose logarithm is infinite.
  for (const double x : normals_from({0xffffffff, 0, 0, 0xffffffff})) EXPECT_LT(std::abs(x), 6);
}

}  // namespace
}  // namespace vitrine
