// Sequences that share the model's steps make what each makes alone.
#include "generate/token_sequence.h"

#include <gtest/gtest.h>

#include <deque>

#include "generate/generate.h"
#include "support/golden.h"

namespace vitrine {
namespace {

TEST(TokenSequence, ThreeInOneStepMakeWhatEachMakesAlone) {
  Engine engine(Golden::open("gemma2").model(), {.threads = 2, .numerics = {.exact = true}});
  const std::vector<std::vector<int32_t>> prompts = {{2, 40, 7, 9, 301, 5, 12, 8, 77, 3}, {2, 90}, {2, 17, 33}};
  std::vector<GenerateOptions> options(3);
  options[0].max_tokens = 12;
  options[1].max_tokens = 20;
  options[1].sampling.temperature = 0.9;
  options[1].sampling.seed = 3;
  options[2].max_tokens = 7;
  options[2].sampling.temperature = 1.5;
  options[2].sampling.top_k = 40;
  std::vector<Generation> alone;
  for (size_t i = 0; i < prompts.size(); ++i) alone.push_back(generate(engine, prompts[i], options[i]));

  std::deque<TokenSequence> sequences;
  const auto cache = engine.make_cache(200);
  std::vector<CacheSequence> cached;  // they give their pages back to the cache
  for (size_t i = 0; i < prompts.size(); ++i) {
    sequences.emplace_back(engine, prompts[i], options[i]);
    cached.push_back(cache->sequence());
  }
  std::vector<std::string> texts(prompts.size());
  for (int steps = 0; std::any_of(sequences.begin(), sequences.end(), [](const TokenSequence& s) { return !s.done(); });
       ++steps) {
    ASSERT_LT(steps, 21);
    Step step;
    std::vector<int64_t> rows;
    std::vector<size_t> running;
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (sequences[i].done()) continue;
      step.add(sequences[i].pending(), &cached[i]);
      rows.push_back(step.rows() - 1);
      running.push_back(i);
    }
    const auto frame = engine.context().frame();
    const Tensor z = engine.run(step, rows);
    step.commit();
    for (size_t r = 0; r < running.size(); ++r)
      texts[running[r]] +=
          sequences[running[r]].push(std::span(z.row<float>(static_cast<int64_t>(r)), static_cast<size_t>(z.row_size())));
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(sequences[i].made().tokens, alone[i].tokens) << i;
    EXPECT_EQ(sequences[i].made().logprobs, alone[i].logprobs) << i;
    EXPECT_EQ(texts[i], alone[i].text) << i;
    EXPECT_EQ(sequences[i].made().finish_reason, alone[i].finish_reason) << i;
  }
}

}  // namespace
}  // namespace vitrine
