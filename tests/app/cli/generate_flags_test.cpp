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

TEST(GenerateFlags, DraftsChangeNoTokenAndAreCounted) {
  const std::vector<std::vector<std::string>> ways = {{"generate", "Once upon a time", "--json", "--max-tokens", "41"},
                                                      {"generate", "Once upon a time", "--json", "--max-tokens", "41",
                                                       "--temperature", "0.9", "--seed", "3", "--presence-penalty", "0.5"},
                                                      {"chat", "There was once a king", "--json", "--max-tokens", "41",
                                                       "--template", std::string(VITRINE_SOURCE) + "/examples/plain-chat.jinja"}};
  for (const auto& way : ways) {
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), way.begin(), way.end());
      const Outcome outcome = vitrine(more);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      return outcome.json();
    };
    const auto count = [](const Json& document, const char* key) {
      return (document.contains("timings") ? document["timings"] : document).at(key).get<int>();
    };
    const Json plain = with({}), lookup = with({"--lookup", "5"}), draft = with({"--draft", shipped_model_folder()}),
               more = with({"--draft", shipped_model_folder(), "--draft-tokens", "7"});
    EXPECT_EQ(count(plain, "drafted_tokens"), 0);
    EXPECT_GT(count(lookup, "drafted_tokens"), 0);
    for (const Json* drafted : {&lookup, &draft, &more})
      for (const char* same : {"text", "tokens", "logprobs", "finish_reason"}) EXPECT_EQ((*drafted)[same], plain[same]) << same;
    if (&way == ways.data()) {  // greedy, and the model drafts for itself: 40 tokens in steps of 5, or of 8
      EXPECT_EQ(count(draft, "drafted_tokens"), 32);
      EXPECT_EQ(count(draft, "accepted_tokens"), 32);
      EXPECT_EQ(count(more, "accepted_tokens"), 35);
    }
  }
  const Outcome shown = vitrine({"generate", "Once upon a time", "--max-tokens", "41", "--draft", shipped_model_folder()});
  EXPECT_CONTAINS(shown.err, "drafts: 32 of 32 tokens accepted");
  EXPECT_EQ(vitrine({"generate", "Once upon a time", "--max-tokens", "41"}).err.find("drafts:"), std::string::npos);
}

TEST(GenerateFlags, DraftsThatCannotBeAreRefused) {
  expect_refused({"generate", "a", "--lookup", "8"}, {"--lookup", "8 is not between 1 and 7"});
  expect_refused({"generate", "a", "--lookup", "0"}, {"--lookup", "0 is not between 1 and 7"});
  expect_refused({"generate", "a", "--draft", "x", "--draft-tokens", "8"}, {"--draft-tokens", "8 is not between 1 and 7"});
  expect_refused({"generate", "a", "--draft", "", "--lookup", "2"}, {"--draft", "is empty; leave the option out"});
  expect_refused({"generate", "a", "--draft", "x", "--lookup", "2"}, {"--lookup and --draft contradict each other"});
  expect_refused({"chat", "a", "--draft-tokens", "3"}, {"--draft-tokens needs --draft"});
  expect_refused({"generate", "a", "--beams", "2", "--lookup", "3"}, {"--lookup does not go together with --beams"});
  expect_refused({"generate", "a", "--beams", "2", "--draft", shipped_model_folder()},
                 {"--draft does not go together with --beams"});
  expect_refused({"generate", "a", "--draft", golden_model("gemma2")}, {"has a vocabulary of 512 tokens", "one of 6144"});
  expect_refused({"generate", "--tokens", "5", "--model", golden_model("qwen3_5"), "--lookup", "3"}, {"has recurrent layers"});
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
