// What `vitrine info --ops` shows of models that are not run.
#include "inspect/step_json.h"

#include <gtest/gtest.h>

#include "inspect/info.h"
#include "support.h"

namespace vitrine {
namespace {

Json step_of(const std::string& config, const StepSize& size) {
  return model_info(std::string(VITRINE_GOLDEN) + "/configs/" + config, {.step = size}).step;
}

// Each parameter of a matrix is one multiply-add of a token, and each key that a query sees 2 head_dim of a head.
TEST(StepJson, MultiplyAddsOfAConfigurationAreThoseOfItsSizes) {
  const Json step = step_of("gpt2.json", {.rows = 1, .position = 99, .cached = true});
  const int64_t blocks = 12 * 12 * 768 * 768, head = 50257 * 768, scores = 12 * 100 * 2 * 768;
  EXPECT_EQ(step.at("multiply_adds").get<int64_t>(), blocks + head + scores);
  // The same without the head for all tokens but the last.
  const Json prompt = step_of("gpt2.json", {.rows = 10});
  EXPECT_EQ(prompt.at("multiply_adds").get<int64_t>(), 10 * blocks + head + 12 * 55 * 2 * 768);
}

TEST(StepJson, MixturesCountTheExpertsThatATokenGoesThrough) {
  const Json step = step_of("mixtral-8x7b.json", {.rows = 1});
  const int64_t attention = 2 * 4096 * 4096 + 2 * 4096 * 1024, experts = 2 * 3 * 4096 * 14336, router = 8 * 4096;
  EXPECT_EQ(step.at("multiply_adds").get<int64_t>(), 32 * (attention + experts + router + 2 * 4096) + 32000 * 4096);
}

TEST(StepJson, OpsNameTheirWeightsAndSettings) {
  const Json step = step_of("gemma-2-9b.json", {.rows = 3});
  int windows = 0;
  for (const Json& op : step.at("ops")) {
    if (op.at("op") == "attention" && op.at("spec").at("window") == 4096) ++windows;
    if (op.at("op") == "gated_mlp" && op.at("layer") == 0) {
      EXPECT_EQ(op.at("weights"), Json::array({"blocks.0.mlp.W_gate", "blocks.0.mlp.W_in", "blocks.0.mlp.W_out"}));
      EXPECT_EQ(op.at("name"), "blocks.0.mlp");
      EXPECT_EQ(op.at("outputs").at(0).at("shape"), Json::array({3, 3584}));
    }
  }
  EXPECT_EQ(windows, 21);
  EXPECT_EQ(step.at("hooks").front().at("name"), "hook_embed");
  EXPECT_EQ(step.at("kept_bytes"), 0);
  EXPECT_GT(step_of("gemma-2-9b.json", {.rows = 3, .tape = true}).at("kept_bytes").get<int64_t>(), 0);
}

TEST(StepJson, AStepBeyondTheContextIsRefused) { EXPECT_THROW(step_of("gpt2.json", {.rows = 25, .position = 1000}), UsageError); }

}  // namespace
}  // namespace vitrine
