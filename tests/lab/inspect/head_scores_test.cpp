// Head scores against NumPy over transformers' patterns (tests/golden/circuits/scores.safetensors).
#include "inspect/head_scores.h"

#include <gtest/gtest.h>

#include <set>

#include "support/golden.h"

namespace vitrine {
namespace {

constexpr std::pair<HeadRole, const char*> kNames[] = {{HeadRole::previous, "previous"},
                                                       {HeadRole::duplicate, "duplicate"},
                                                       {HeadRole::induction, "induction"},
                                                       {HeadRole::first, "first"}};

TEST(HeadScores, AreNumPysOnTransformersPatterns) {
  const Checkpoint file = open_safetensors(std::string(VITRINE_GOLDEN) + "/circuits/scores.safetensors");
  for (const std::string name : {"gpt2_a", "gemma2", "llama", "mistral"}) {
    SCOPED_TRACE(name);
    Engine engine(Golden::open(name).model(), {2, {}});
    const GoldenTensor stored = golden_tensor(file, name + "/ids");
    const std::vector<int32_t> ids(stored.begin(), stored.end());
    const HeadScores scores = score_heads(engine, ids);
    ASSERT_EQ(static_cast<int64_t>(scores.heads.size()), engine.shape().n_layers * engine.shape().n_heads);
    for (const auto& [role, role_name] : kNames) {
      std::vector<double> mean, detector;
      for (const HeadScore& head : scores.heads) {
        mean.push_back(head.at(role));
        detector.push_back(scores.detector(head, role));
      }
      const GoldenTensor means = golden_tensor(file, name + "/" + role_name),
                         detectors = golden_tensor(file, name + "/detector_" + role_name);
      EXPECT_TRUE((close_to<double, float>(mean, means.values, Tolerance{.abs = 1e-6, .rel = 1e-4}))) << role_name;
      EXPECT_TRUE((close_to<double, float>(detector, detectors.values, Tolerance{.abs = 1e-6, .rel = 1e-4}))) << role_name;
    }
  }
}

// Of three layers the middle one attends.
TEST(HeadScores, AreOfLayersWithAttention) {
  Engine engine(Golden::open("lfm2").model(), {1, {}});
  const std::vector<int32_t> ids = {5, 3, 7, 5, 3};
  const HeadScores scores = score_heads(engine, ids);
  ASSERT_EQ(scores.heads.size(), 4u);
  for (const HeadScore& head : scores.heads) EXPECT_EQ(head.layer, 1);
  EXPECT_EQ(scores.of(1, 3).head, 3);
}

TEST(HeadScores, NoQueryHasSuchKeys) {
  Engine engine(Golden::open("gpt2_a").model(), {1, {}});
  const std::vector<int32_t> different = {5, 3, 7}, one = {5};
  const HeadScores scores = score_heads(engine, different);
  EXPECT_EQ(scores.queries, (std::array<int64_t, kHeadRoles>{2, 0, 0, 2}));
  for (const HeadScore& head : scores.heads) {
    EXPECT_EQ(head.at(HeadRole::induction), 0);
    EXPECT_GT(head.at(HeadRole::previous), 0);
  }
  EXPECT_EQ(score_heads(engine, one).queries, (std::array<int64_t, kHeadRoles>{0, 0, 0, 0}));
}

TEST(HeadScores, RepeatedRandomTokens) {
  const Engine engine(Golden::open("gpt2_a").model(), {1, {}});  // no tokenizer: no BOS
  const std::vector<int32_t> ids = repeated_random_ids(engine, 20, 1);
  ASSERT_EQ(ids.size(), 40u);
  EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + 20), std::vector<int32_t>(ids.begin() + 20, ids.end()));
  EXPECT_EQ(std::set<int32_t>(ids.begin(), ids.end()).size(), 20u);
  EXPECT_EQ(ids, repeated_random_ids(engine, 20, 1));
  EXPECT_NE(ids, repeated_random_ids(engine, 20, 2));
  EXPECT_EQ(repeated_random_ids(engine, 48, 1).size(), 96u);
  for (const int64_t length : {0, 1, 49}) {
    try {
      repeated_random_ids(engine, length, 1);
      ADD_FAILURE() << length << " accepted";
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find("2 to 48"), std::string::npos) << e.what();
    }
  }
  const Engine shipped(std::string(VITRINE_SOURCE) + "/models/tales9m", {1, {}});
  const std::vector<int32_t> with_bos = repeated_random_ids(shipped, 10, 1);
  ASSERT_EQ(with_bos.size(), 21u);
  EXPECT_EQ(with_bos[0], 2);
  EXPECT_EQ(with_bos[1], with_bos[11]);
}

}  // namespace
}  // namespace vitrine
