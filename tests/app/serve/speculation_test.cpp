// Prompt lookup by request: faster where a text repeats itself, and the same tokens.
#include <gtest/gtest.h>

#include "support.h"
#include "support/golden.h"

namespace vitrine::serve {
namespace {

const std::vector<int32_t>& repeated_prompt() {
  static const std::vector<int32_t> prompt = [] {
    std::vector<int32_t> ids;
    for (int i = 0; i < 8; ++i) ids.insert(ids.end(), {5, 6, 7, 8});
    return ids;
  }();
  return prompt;
}

OrderedJson spoken(const Served& served, OrderedJson more) {
  OrderedJson request = {{"prompt", repeated_prompt()}, {"n_predict", 40}, {"temperature", 0}, {"return_tokens", true}};
  request.update(more);
  return served.made("/completion", request);
}

TEST(Speculation, ALookupByRequestChangesNoToken) {
  Served served({}, Golden::open("llama").model());
  const std::vector<int32_t> alone = served.greedy(repeated_prompt(), 40).tokens;
  const OrderedJson plain = spoken(served, OrderedJson::object());
  EXPECT_FALSE(plain["timings"].contains("draft_n"));
  EXPECT_EQ(plain["tokens"], OrderedJson(alone));
  for (const char* field : {"speculative.n_max", "prompt_lookup_num_tokens"}) {
    const OrderedJson drafted = spoken(served, {{field, 4}});
    EXPECT_EQ(drafted["tokens"], OrderedJson(alone));
    EXPECT_GT(drafted["timings"]["draft_n"], 0);
    EXPECT_GT(drafted["timings"]["draft_n_accepted"], 0);
    EXPECT_LE(drafted["timings"]["draft_n_accepted"], drafted["timings"]["draft_n"]);
  }
  // Sampled ones are those of the same seed without.
  const OrderedJson sampled = {{"temperature", 0.7}, {"seed", 3}};
  OrderedJson with = sampled;
  with["speculative.n_max"] = 7;
  EXPECT_EQ(spoken(served, with)["tokens"], spoken(served, sampled)["tokens"]);
  const OrderedJson chat = served.made("/v1/completions", {{"prompt", repeated_prompt()},
                                                           {"max_tokens", 40},
                                                           {"temperature", 0},
                                                           {"speculative.n_max", 1000},
                                                           {"n", 2},
                                                           {"return_token_ids", true}});
  for (const OrderedJson& choice : chat["choices"]) EXPECT_EQ(choice["token_ids"], OrderedJson(alone));
  expect_error(served.post("/completion", {{"prompt", {5}}, {"speculative.n_max", -1}}), 400, "speculative.n_max", "expected");
}

TEST(Speculation, TheServerHasADefault) {
  ServiceOptions options;
  options.lookup = 4;
  Served served(options, Golden::open("llama").model());
  EXPECT_GT(spoken(served, OrderedJson::object())["timings"]["draft_n"], 0);
  EXPECT_FALSE(spoken(served, {{"speculative.n_max", 0}})["timings"].contains("draft_n"));
  EXPECT_THROW(Served recurrent(options, Golden::open("qwen3_5").model()), InputError);
  const Served recurrent({}, Golden::open("qwen3_5").model());
  const Reply refused = recurrent.post("/completion", {{"prompt", {5}}, {"n_predict", 1}, {"speculative.n_max", 4}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("cannot be rolled back"), std::string::npos) << refused.body;
}

// The model itself drafts, so that every draft is right.
TEST(Speculation, ADraftModelChangesNoToken) {
  const std::string model = Golden::open("llama").model();
  ServiceOptions options;
  options.draft = std::make_shared<Engine>(model, EngineOptions{.threads = 1, .numerics = {.exact = true}});
  options.draft_tokens = 3;
  Served served(options, model);
  const std::vector<int32_t> alone = served.greedy(repeated_prompt(), 40).tokens;
  const OrderedJson drafted = spoken(served, OrderedJson::object());
  EXPECT_EQ(drafted["tokens"], OrderedJson(alone));
  EXPECT_GE(drafted["timings"]["draft_n"], 20);
  EXPECT_EQ(drafted["timings"]["draft_n_accepted"], drafted["timings"]["draft_n"]);
  EXPECT_FALSE(spoken(served, {{"speculative.n_max", 0}})["timings"].contains("draft_n"));
  const OrderedJson sampled = {{"temperature", 0.7}, {"seed", 3}};
  OrderedJson without = sampled;
  without["speculative.n_max"] = 0;
  EXPECT_EQ(spoken(served, sampled)["tokens"], spoken(served, without)["tokens"]);

  // Many at once, of which each has a drafter of its own, and prompts that it reads in several calls.
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 12; ++i) {
    prompts.emplace_back();
    for (int32_t j = 0; j < 20 + 7 * i; ++j) prompts.back().push_back(3 + (i * 5 + j * 3) % 40);
  }
  const OrderedJson many = served.made(
      "/v1/completions",
      {{"prompt", prompts}, {"max_tokens", 24}, {"temperature", 0}, {"ignore_eos", true}, {"return_token_ids", true}});
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(many["choices"][i]["token_ids"], OrderedJson(served.greedy(prompts[i], 24, {.ignore_eos = true}).tokens)) << i;

  ServiceOptions other;
  other.draft = std::make_shared<Engine>(std::string(VITRINE_SOURCE) + "/models/tales9m", EngineOptions{.threads = 1});
  EXPECT_THROW(Served wrong(other, model), InputError);
}

}  // namespace
}  // namespace vitrine::serve
