#include "runtime/logits.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/kl_from.h"

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

// From one row to several it is the same number, also where both rule a token out.
TEST(Logits, KlFromOneRowIsTheKlOfTwo) {
  const std::vector<float> p = {1.5f, -2, 0.25f, 3, -INFINITY, -200};
  const KlFrom from(p);
  for (const std::vector<float>& q : {std::vector<float>{0, 1, 2, 3, -INFINITY, 5}, p, {-1, 4, 0, 0, 2, -300}}) {
    EXPECT_TRUE(std::isfinite(kl_divergence(p, q)));
    EXPECT_EQ(from.to(q, log_sum_exp(q)), kl_divergence(p, q));
  }
}

}  // namespace
}  // namespace vitrine
