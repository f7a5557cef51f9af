// Prompts that are continued together: each as it is by itself.
#include "generate/together.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "generate/generate.h"
#include "support/golden.h"

namespace vitrine {
namespace {

TEST(GenerateTogether, EachPromptIsAsByItself) {
  for (const char* family : {"gpt2_a", "gemma2", "lfm2"}) {
    Engine engine(Golden::open(family).model(), {2, {.f32 = true, .exact = true}});
    std::vector<std::vector<int32_t>> prompts;
    for (int32_t i = 0; i < 70; ++i)  // more than are decoded together, one longer than a step
      prompts.emplace_back(i == 3 ? 20 : static_cast<size_t>(1 + i % 11), 1 + i % 30);
    GenerateOptions options{.max_tokens = 6, .eos = {generate(engine, prompts[5], {.max_tokens = 3}).tokens[2]}};
    options.sampling.temperature = 1.5;
    options.sampling.seed = 7;
    const std::vector<Generation> made = generate_together(engine, prompts, options);
    ASSERT_EQ(made.size(), prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      const Generation alone = generate(engine, prompts[i], options);
      EXPECT_EQ(made[i].tokens, alone.tokens) << family << " prompt " << i;
      EXPECT_EQ(made[i].logprobs, alone.logprobs) << family << " prompt " << i;
      EXPECT_EQ(made[i].finish_reason, alone.finish_reason) << family << " prompt " << i;
    }
  }
}

TEST(GenerateTogether, RefusesWhatItCannotDo) {
  Engine engine(Golden::open("gpt2_a").model(), {2, {}});
  const std::vector<std::vector<int32_t>> prompts = {{1, 2}, {3, -1}};
  EXPECT_TRUE(generate_together(engine, {}, {}).empty());
  try {
    generate_together(engine, prompts, {});
    FAIL() << "a token outside the vocabulary was taken";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("prompt 1: token -1 at place 1"), std::string::npos) << e.what();
  }
  GenerateOptions drafted;
  drafted.drafter = std::make_shared<LookupDrafter>(2);
  EXPECT_THROW(generate_together(engine, std::span(prompts).first(1), drafted), UsageError);
}

}  // namespace
}  // namespace vitrine
