// vitrine compare.
#include "cli/program.h"

namespace vitrine {
namespace {

std::string gguf(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf"; }

TEST(CompareCommand, TwoTypesOfOneModel) {
  const std::vector<std::string> line = {"compare",  golden_model("llama"), gguf("llama_q8_0"),
                                         "--tokens", "5,3,7,9,11,2,40,17",  "--json"};
  const Outcome outcome = vitrine(line);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = outcome.json();
  EXPECT_EQ(document["a"]["dtypes"], Json({"f32"}));
  EXPECT_EQ(document["b"]["dtypes"].back(), "q8_0");
  ASSERT_EQ(document["layers"].size(), 4u);
  EXPECT_EQ(document["layers"][0]["point"], "embedding");
  EXPECT_EQ(document["layers"][0]["layer"], nullptr);
  EXPECT_EQ(document["layers"][3]["layer"], 2);
  EXPECT_GT(document["layers"][3]["relative"].get<double>(), 1e-4);
  EXPECT_LT(document["layers"][3]["relative"].get<double>(), 0.1);
  ASSERT_EQ(document["predictions"].size(), 8u);
  double sum = 0;
  for (const Json& prediction : document["predictions"]) sum += prediction["kl"].get<double>();
  EXPECT_NEAR(sum / 8, document["kl_mean"].get<double>(), 1e-12);
  EXPECT_EQ(document["pieces"], nullptr);

  // The first beyond follows the threshold; with room for everything there is none.
  const auto first = [&](const char* threshold) {
    std::vector<std::string> words = line;
    words.insert(words.end(), {"--threshold", threshold});
    return vitrine(words).json()["first_beyond"];
  };
  EXPECT_EQ(first("0"), "embedding");
  EXPECT_EQ(first("2"), nullptr);
  const Outcome table = vitrine({"compare", golden_model("llama"), gguf("llama_q4_0"), "--tokens", "5,3,7", "--threshold", "0"});
  EXPECT_CONTAINS(table.out, "first beyond 0: embedding");
  EXPECT_CONTAINS(table.out, "layer 2");
}

TEST(CompareCommand, ReadsTextWithTheFirstModelsTokenizer) {
  const Json document = vitrine({"compare", shipped_model_folder(), shipped_model_folder(), "The old king", "--json"}).json();
  EXPECT_EQ(document["pieces"], Json({"<bos>", "The", "▁old", "▁king"}));
  EXPECT_EQ(document["kl_most"], 0.0);
  EXPECT_EQ(document["first_beyond"], nullptr);
  EXPECT_EQ(document["same_top"], 1.0);
}

TEST(CompareCommand, RefusesWhatIsNoPair) {
  expect_refused({"compare", golden_model("llama"), golden_model("gpt2_a"), "--tokens", "5"},
                 {"not two files of one model", "gpt2"});
  expect_refused({"compare", golden_model("gpt2_b"), golden_model("gpt2_a"), "--tokens", "5"},
                 {"not two files of one model", "n_layers 2", "has 3"});
  expect_refused({"compare", golden_model("llama"), "--tokens", "5"}, {"B"});
  expect_refused({"compare", golden_model("llama"), golden_model("llama")}, {"no prompt"});
  expect_refused({"compare", golden_model("classic_pre"), golden_model("classic_pre"), "the king"}, {"tokenizer"});
  expect_refused({"compare", golden_model("llama"), golden_model("llama"), "--tokens", "5,512"}, {"512"});
  expect_refused({"compare", golden_model("llama"), golden_model("llama"), "--tokens", "5", "--threshold", "-1"},
                 {"--threshold"});
  expect_refused({"compare", golden_model("llama"), "no/such/model", "--tokens", "5"}, {"no/such/model"});
}

}  // namespace
}  // namespace vitrine
