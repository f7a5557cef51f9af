#include "runtime/logits.h"

#include <gtest/gtest.h>

#include <cmath>

namespace vitrine {
namespace {

TEST(TopLogprobs, LikeliestFirst) {
  const std::vector<float> logits = {1, 4, 2, 4};
  const auto top = top_logprobs(logits, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, 1);
  EXPECT_EQ(top[1].token, 3);
  EXPECT_EQ(top[2].token, 2);
  const double total = std::log(std::exp(1.0) + 2 * std::exp(4.0) + std::exp(2.0));
  EXPECT_NEAR(top[0].logprob, 4 - total, 1e-6);
  EXPECT_NEAR(top[2].logprob, 2 - total, 1e-6);
  EXPECT_EQ(top_logprobs(logits, 100).size(), 4u);
  std::vector<float> row = logits;
  log_softmax(row);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(row[i], logits[i] - total, 1e-6);
}

}  // namespace
}  // namespace vitrine
