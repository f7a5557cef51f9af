// Flags of generation at the edges of what they take, and beams at the edges of model and context.
#include "cli/program.h"

namespace vitrine {
namespace {

TEST(GenerateFlags, NumbersTooSmallToDivideBy) {
  // Below the smallest normal double; as an f32 it is 0.
  expect_refused({"generate", "a", "--max-tokens", "1", "--temperature", "1e-320"}, {"temperature makes a score infinite"});
  EXPECT_EQ(vitrine({"generate", "a", "--max-tokens", "1", "--top-p", "1e-320"}).code, 0);
}

TEST(GenerateFlags, EmptyValuesAreNoDefaults) {
  expect_refused({"generate", "a", "--eos", ""}, {"--eos", "is empty; leave the option out"});
  expect_refused({"generate", "a", "--samplers", ""}, {"--samplers", "is empty; leave the option out"});
  expect_refused({"generate", "a", "--model", ""}, {"--model", "is empty; leave the option out"});
  expect_refused({"chat", ""}, {"TEXT", "is empty; leave the option out"});
  expect_refused({"tokenize", "a", "--compare", ""}, {"--compare", "is empty; leave the option out"});
}

TEST(GenerateFlags, WhatHasNoUseIsRefused) {
  const std::vector<std::string> greedy = {"generate", "a", "--max-tokens", "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), greedy.begin(), greedy.end());
    return more;
  };
  expect_refused(with({"--samplers", "top_k,temperature"}), {"--samplers orders rules, and none is given"});
  EXPECT_EQ(vitrine(with({"--seed", "3"})).code, 0);  // what is the same for every seed needs no refusal
  EXPECT_EQ(vitrine(with({"--seed", "3", "--top-k", "4"})).code, 0);
  EXPECT_EQ(vitrine(with({"--samplers", "repetition", "--repetition-penalty", "1.2"})).code, 0);
}

// One value for each flag: the word behind it is the prompt, and brackets belong to the string.
TEST(GenerateFlags, AStopTakesOneStringAsItIs) {
  const std::vector<std::string> common = {"generate", "--json", "--max-tokens", "8"};
  const auto text = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    const Outcome outcome = vitrine(more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.json()["text"].get<std::string>() : outcome.err;
  };
  const std::string plain = text({"Once upon"}), first = plain.substr(1, plain.find(' ', 1) - 1);
  EXPECT_EQ(text({"--stop", "never said", "Once upon"}), plain);
  EXPECT_EQ(text({"--stop", "[" + first + "]", "Once upon"}), plain) << first;
}

TEST(GenerateFlags, BeamsUpToTheEndOfTheContext) {
  const std::string model = std::string(VITRINE_GOLDEN) + "/variants/llama_head_dim";  // 61 tokens, a context of 64
  std::string prompt = "5";
  for (int i = 1; i < 62; ++i) prompt += ",7";
  const Json found = vitrine({"generate", "--model", model, "--tokens", prompt, "--beams", "2", "--json"}).json();
  EXPECT_EQ(found["tokens"].size(), 3u);  // positions 62 and 63, and a last token that needs none
  EXPECT_EQ(found["logprobs"].size(), 3u);
}

}  // namespace
}  // namespace vitrine
