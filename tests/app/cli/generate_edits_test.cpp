// vitrine generate --edits: text from a model with the interventions of a recipe.
#include <cmath>

#include "cli/program.h"

namespace vitrine {
namespace {

TEST(GenerateEdits, WritesWhatTheChangedModelExpects) {
  const Scratch scratch;
  const std::string edits = "interventions: [{head: 1.3, do: zero}, {mlp: 5, positions: 2, do: zero}]\n";
  // Another prompt than the recipe's: it is not looked at, nor is its metric.
  const std::string recipe = scratch.write("r.yaml", "prompt: Nobody\nmetric: {logprob: ' a'}\n" + edits);
  std::string text = "The king sat on";
  const Outcome plain = vitrine({"generate", text, "--max-tokens", "6", "--compute", "f32", "--json"});
  const Outcome changed = vitrine({"generate", text, "--max-tokens", "6", "--compute", "f32", "--json", "--edits", recipe});
  ASSERT_EQ(changed.code, 0) << changed.err;
  EXPECT_NE(changed.json()["logprobs"], plain.json()["logprobs"]);
  // Token by token what `intervene` says comes next after the prompt and the tokens so far.
  Json ids = vitrine({"tokenize", text, "--json"}).json()["tokens"];
  const Json made = changed.json();
  ASSERT_EQ(made["tokens"].size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    const std::string step = scratch.write("step.yaml", "prompt: {tokens: " + ids.dump() + "}\n" + edits);
    const Json report = vitrine({"intervene", step, "--compute", "f32", "--json"}).json();
    const Json& first = report["after"][0]["top"][0];
    EXPECT_EQ(made["tokens"][i], first["token"]) << "token " << i;
    EXPECT_NEAR(made["logprobs"][i].get<double>(), first["logprob"].get<double>(), 1e-4) << "token " << i;
    ids.push_back(made["tokens"][i]);
  }
}

TEST(GenerateEdits, RefusesWhatItCannotDo) {
  const Scratch scratch;
  const std::string recipe = scratch.write("r.yaml", "prompt: a\ninterventions: [{head: 1.3, do: zero}]\n");
  const std::string none = scratch.write("none.yaml", "prompt: a\nmetric: {logprob: ' a'}\nablate: z\n");
  expect_refused({"generate", "a", "--edits", none}, {"none.yaml", "no interventions"});
  expect_refused({"generate", "a", "--edits", recipe, "--beams", "2"}, {"--edits", "--beams"});
  expect_refused({"generate", "a", "--edits", "absent.yaml"}, {"absent.yaml"});
  expect_refused({"generate", "a", "--edits", ""}, {"--edits", "is empty"});
  expect_refused({"generate", "a", "--edits", scratch.write("far.yaml", "prompt: a\ninterventions: [{head: 99.0, do: zero}]\n")},
                 {"far.yaml", "99"});
}

}  // namespace
}  // namespace vitrine
