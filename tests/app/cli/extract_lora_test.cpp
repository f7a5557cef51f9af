// vitrine extract-lora as a shell runs it: what it prints, mergekit's options, refusals, and a run that is killed.
#include "cli/program.h"

namespace vitrine {
namespace {

const std::string kTiny = std::string(VITRINE_GOLDEN) + "/merging/tiny_llama/";

Outcome extract_lora(const std::string& out, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"extract-lora", "--model", kTiny + "ft1", "--base-model", kTiny + "base", "--out-path", out};
  words.insert(words.end(), more.begin(), more.end());
  return vitrine(words);
}

TEST(ExtractLoraCommand, TellsWhatTheAdapterHolds) {
  const Scratch scratch;
  const Outcome plain = extract_lora(scratch / "plain", {"--max-rank", "2"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_CONTAINS(plain.out, "21 matrices of rank 2, 9 modules whole, 1,281 numbers");
  EXPECT_CONTAINS(plain.out, "of the squared difference of the matrices; least in model.layers.");
  const Outcome json = extract_lora(scratch / "json", {"--max-rank", "200", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  EXPECT_EQ(json.json()["rank"], 9);
  EXPECT_EQ(json.json()["modules"].size(), 30u);
  EXPECT_NEAR(json.json()["modules"][3]["kept"].get<double>(), 1, 1e-6);
}

TEST(ExtractLoraCommand, TakesMergekitsOptions) {
  const Scratch scratch;
  const Outcome outcome =
      extract_lora(scratch / "out", {"--max-rank", "2", "--cuda", "--device", "cuda", "--lazy-unpickle", "--no-async-write", "-v",
                                     "-e", "norm", "-e", "embed_tokens|lm_head", "-i", "proj", "--no-distribute-scale"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* flag : {"--cuda", "--device", "--lazy-unpickle", "-v"})
    EXPECT_CONTAINS(outcome.err, std::string("note: ") + flag + " has no effect here");
  EXPECT_CONTAINS(outcome.out, "21 matrices of rank 2, 0 modules whole");
}

TEST(ExtractLoraCommand, Refuses) {
  const Scratch scratch;
  const std::string out = scratch / "out";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--max-rank", "0"}, "--max-rank: 0 is not between 1 and 65536"},
      {{"--sv-epsilon", "-1"}, "--sv-epsilon: -1 is not between"},
      {{"-i", "("}, "--include-regex ( is no regular expression"},
      {{"--save-module", "q_prj"}, "--save-module q_prj names no module of " + kTiny + "ft1; did you mean q_proj?"},
      {{"--no-safe-serialization"}, "--no-safe-serialization asks for pickled weights"},
      {{"--sv-epsilon", "1000"}, "Lower --sv-epsilon"}};
  for (const auto& [words, message] : cases) {
    const Outcome outcome = extract_lora(out, words);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_CONTAINS(outcome.err, message);
    EXPECT_FALSE(std::filesystem::exists(out));
  }
  EXPECT_EQ(extract_lora(out).code, 0);
  const Outcome again = extract_lora(out);
  EXPECT_EQ(again.code, 2);
  EXPECT_CONTAINS(again.err, "out is there already; name a new directory, or remove it first");
}

TEST(ExtractLoraCommand, ClearsAwayWhatAKilledRunLeft) {
  const Scratch scratch;
  scratch.write(".extracting-out/factors.tmp.1.0", "half of it");
  EXPECT_EQ(extract_lora(scratch / "out").code, 0);
  EXPECT_FALSE(std::filesystem::exists(scratch / ".extracting-out"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "out/factors.tmp.1.0"));
}

}  // namespace
}  // namespace vitrine
