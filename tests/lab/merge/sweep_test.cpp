// A merge for several values of a parameter: what the parameter becomes, what is refused, and that values are those of the merge.
#include "merge/sweep.h"

#include <gtest/gtest.h>

#include <cmath>

#include "merge/run.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kModel = std::string(VITRINE_SOURCE) + "/models/tales9m";
constexpr const char* kText = "Once upon a time there was a king who had three sons, and the youngest was called Hans.";

// Two models with the same weights: a file is not taken for the folder around it.
MergeRecipe liti_of_itself(const std::string& parameters) {
  return parse_merge_recipes("merge_method: liti\nbase_model: " + kModel + "\nmodels:\n  - model: " + kModel +
                                 "/model.safetensors\n" + parameters,
                             "recipe.yml")
      .front();
}

TEST(ParseSweep, TakesANameAndNumbers) {
  const SweptParameter swept = parse_sweep("eta=0,0.25,1e-1,-2", "--sweep");
  EXPECT_EQ(swept.name, "eta");
  EXPECT_EQ(swept.values, (std::vector<double>{0, 0.25, 0.1, -2}));
  const auto refused = [](const std::string& text, const std::string& part) {
    EXPECT_CONTAINS(message_of<UsageError>([&] { parse_sweep(text, "--sweep"); }), part);
  };
  refused("", "such as eta=");
  refused("eta", "such as eta=");
  refused("=1", "such as eta=");
  refused("eta=", "\"\" is no number");
  refused("eta=1,,2", "\"\" is no number");
  refused("eta=1,x", "\"x\" is no number");
  refused("eta=1,nan", "\"nan\" is no number");
  refused("eta=1,2,", "\"\" is no number");
  std::string many = "eta=0";
  for (int i = 0; i < 2000; ++i) many += ",0";
  refused(many, "1000 values at most");
}

TEST(OverrideParameter, CountsOverAllThatARecipeSays) {
  MergeRecipe recipe = parse_merge_recipes("merge_method: ties\nbase_model: " + kModel + "\nmodels:\n  - model: " + kModel +
                                               "\n    parameters: {weight: [0, 1], density: 0.5}\n"
                                               "parameters: {density: 0.1, lambda: 2}\n",
                                           "recipe.yml")
                           .front();
  override_parameter(recipe, "density", 0.75);
  MergePlan plan = plan_merge(recipe, {});
  for (const PlannedTensor& tensor : plan.tensors)
    for (const double density : tensor.parameters.each("density")) EXPECT_TRUE(density == 0.75 || std::isnan(density));
  override_parameter(plan, "lambda", 3);
  override_parameter(plan, "density", 0.25);
  for (const PlannedTensor& tensor : plan.tensors) {
    EXPECT_EQ(tensor.parameters.number("lambda"), 3);
    for (const double density : tensor.parameters.each("density")) EXPECT_TRUE(density == 0.25 || std::isnan(density));
  }
  EXPECT_CONTAINS(message_of<UsageError>([&] { override_parameter(plan, "densty", 1); }), "did you mean density?");
  EXPECT_CONTAINS(message_of<UsageError>([&] { override_parameter(recipe, "t", 1); }), "ties has no parameter \"t\"");
  EXPECT_CONTAINS(message_of<UsageError>([&] { override_parameter(plan, "rescale", 2); }), "rescale cannot be 2");
}

TEST(SweepMerge, NeedsNoValueInTheRecipe) {
  size_t told = 0;
  const MergeSweep sweep = sweep_merge(liti_of_itself(""), {}, {"eta", {0, 0.5}}, kText, 2, [&](const SweepPoint&) { ++told; });
  ASSERT_EQ(sweep.points.size(), 2u);
  EXPECT_EQ(told, 2u);
  EXPECT_EQ(sweep.parameter, "eta");
  EXPECT_EQ(sweep.distance_from, kModel);
  Engine engine(kModel, EngineOptions{.threads = 2});
  const TextLoss alone = text_loss(engine, kText);
  for (const SweepPoint& point : sweep.points) {  // a model between itself and itself
    EXPECT_EQ(point.text.tokens, alone.tokens);
    EXPECT_NEAR(point.text.loss, alone.loss, 1e-6);
    EXPECT_NEAR(*point.distance, 0, 1e-6);
  }
}

}  // namespace
}  // namespace vitrine
