// vitrine circuits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/program.h"

namespace vitrine {
namespace {

TEST(CircuitsCommand, ADocumentOfEveryHead) {
  const Outcome outcome =
      vitrine({"circuits", "--model", golden_model("gemma2"), "--tokens", "5,3,7,5,3,7", "--offset", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = outcome.json();
  EXPECT_EQ(document["prompt"], "as given");
  EXPECT_EQ(document["tokens"], Json({5, 3, 7, 5, 3, 7}));
  EXPECT_EQ(document["queries"], Json({{"previous_token", 5}, {"duplicate_token", 3}, {"induction", 3}, {"first_token", 5}}));
  EXPECT_EQ(document["offset"], 2);
  ASSERT_EQ(document["heads"].size(), 16u);  // 4 layers of 4
  for (const Json& head : document["heads"]) {
    for (const char* score : {"previous_token", "duplicate_token", "induction", "first_token"}) {
      EXPECT_GE(head[score].get<double>(), 0);
      EXPECT_LE(head[score].get<double>(), 1.000001);
    }
    EXPECT_LE(std::abs(head["copying"].get<double>()), 1);
    EXPECT_EQ(head["eigenvalues"].size(), 16u);
    EXPECT_EQ(head["qk"]["singular_values"].size(), 16u);
    EXPECT_EQ(head["ov"]["rank"], 16);
  }
  EXPECT_EQ(document["composition"].size(), 6u * 16);  // pairs of layers, of heads
  const Json one =
      vitrine({"circuits", "--model", golden_model("gemma2"), "--layer", "2", "--head", "1", "--compositions", "0", "--json"})
          .json();
  ASSERT_EQ(one["heads"].size(), 1u);
  EXPECT_EQ(one["heads"][0]["layer"], 2);
  EXPECT_EQ(one["composition"], Json::array());
  EXPECT_EQ(one["prompt"], "repeated random tokens");
  EXPECT_EQ(one["tokens"].size(), 101u);  // BOS and twice fifty
}

TEST(CircuitsCommand, ATableForPeople) {
  const Outcome outcome = vitrine({"circuits", "--repeat", "8", "--compositions", "4", "--seed", "3"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_CONTAINS(outcome.out, "induction");
  // Sentences first; what they say is what the document has.
  const Json heads = vitrine({"circuits", "--repeat", "8", "--seed", "3", "--json"}).json()["heads"];
  const auto best = *std::max_element(heads.begin(), heads.end(),
                                      [](const Json& a, const Json& b) { return a["previous_token"] < b["previous_token"]; });
  EXPECT_TRUE(outcome.out.starts_with(fmt::format("{}.{} looks at the previous token, {:.1f} %", best["layer"].get<int>(),
                                                  best["head"].get<int>(), 100 * best["previous_token"].get<double>())))
      << outcome.out;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);  // no terminal, no colors
  EXPECT_CONTAINS(outcome.out, "strongest compositions");
  EXPECT_CONTAINS(outcome.err, "17 tokens");  // BOS and twice eight
  EXPECT_EQ(vitrine({"circuits", "--repeat", "8", "--compositions", "4", "--seed", "3", "--threads", "1"}).out, outcome.out);
}

TEST(CircuitsCommand, RefusesWhatIsNotThere) {
  expect_refused({"circuits", "--layer", "99"}, {"layer 99 does not exist"});
  expect_refused({"circuits", "--head", "99"}, {"head 99 does not exist"});
  expect_refused({"circuits", "--head", "-1"}, {"--head"});
  expect_refused({"circuits", "--offset", "4", "--model", golden_model("gpt2_a")}, {"offset of 4", "adds its positions"});
  expect_refused({"circuits", "--offset", "128", "--model", golden_model("llama")}, {"expected 0 to 127"});
  expect_refused({"circuits", "--repeat", "49", "--model", golden_model("gpt2_a")}, {"49 tokens", "2 to 48"});
  expect_refused({"circuits", "the king", "--repeat", "4"}, {"--repeat"});
  expect_refused({"circuits", "the king", "--seed", "3"}, {"--seed chooses random tokens"});
  expect_refused({"circuits", "the king", "--tokens", "2"}, {"more than one prompt: give a text or --tokens."});
  expect_refused({"circuits", "--tokens", "2,3;4"}, {"one"});
  expect_refused({"circuits", "--tokens", "2,99999"}, {"99999"});
  expect_refused({"circuits", "--model", "no/such/model"}, {"no/such/model"});
}

TEST(CircuitsCommand, SaysWhereNoQueryHasSuchKeys) {
  const Outcome outcome = vitrine({"circuits", "--tokens", "2,300,301", "--compositions", "0", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json head = outcome.json()["heads"][0];
  EXPECT_TRUE(head["duplicate_token"].is_null() && head["induction"].is_null());
  EXPECT_TRUE(head["previous_token"].is_number() && head["first_token"].is_number());
}

}  // namespace
}  // namespace vitrine
