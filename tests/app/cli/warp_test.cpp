// vitrine warp and vitrine merge --sweep as a shell runs them: killed at any moment and resumed, tables, drawings, refusals.
#include <cmath>

#include "cli/program.h"
#include "support/random_model.h"
#include "train/run_support.h"

namespace vitrine {
namespace {

const std::string kTales = std::string(VITRINE_SOURCE) + "/models/tales9m";

std::string write_warp_recipe(const Scratch& scratch, const std::string& out) {
  return scratch.write(
      out + ".yaml",
      "model: " + scratch / "model" + "\nout: " + scratch / out + "\nrounds: 2\ntrain: {data: {train: " + scratch / "data" +
          "}, sequence_length: 16, batch: 2, steps: 40, optimizer: {lr: 1e-2}, ema: 0.9, kl_to: ema, kl_weight: 0.1,\n"
          "        checkpoint: {every: 10}}\n"
          "children: [{seed: 3}, {}]\nliti: {etas: [0, 0.5, 1], next: best}\nevaluate: {data: " +
          scratch / "valid" + "}\n");
}

TEST(WarpCommand, IsKilledAndGoesOnToTheSameBits) {
  const Scratch scratch;
  small_data(scratch, "data", 40, 1);
  small_data(scratch, "valid", 6, 2);
  std::filesystem::create_directories(scratch / "model");
  write_random_model(
      scratch / "model",
      {{"model_type", "gpt2"}, {"n_embd", 16}, {"n_layer", 2}, {"n_head", 2}, {"vocab_size", 61}, {"n_positions", 32}});
  const Outcome whole = vitrine({"warp", write_warp_recipe(scratch, "whole"), "--json"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Json result = whole.json();
  ASSERT_EQ(result.at("rounds").size(), 2u);
  EXPECT_FALSE(result.at("stopped"));
  EXPECT_LT(result["rounds"][1]["etas"][0]["loss"], result["initial"]["loss"]);
  const std::string drawing = read_file(scratch / "whole/front.svg");
  for (const char* part : {"<svg", "round 1", "round 2", "children, initial model", "loss (nats a token)"})
    EXPECT_CONTAINS(drawing, part);

  const std::string recipe = write_warp_recipe(scratch, "killed");
  int runs = 0;
  Outcome outcome;
  for (double seconds = 0.15; runs < 60; ++runs, seconds *= 1.1) {  // up to 40 s, for a machine that is busy
    std::vector<std::string> words = {"/usr/bin/timeout", "--foreground", "-s",   "KILL",  std::to_string(seconds),
                                      VITRINE_PROGRAM,    "warp",         recipe, "--json"};
    if (runs > 0) words.emplace_back("--resume");
    outcome = run_program(words);
    if (outcome.code == 0) break;
    // 124: the program ended by itself at the moment when timeout was about to kill it.
    ASSERT_TRUE(outcome.code == 128 + 9 || outcome.code == 124) << outcome.code << "\n" << outcome.err;
  }
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(outcome.json()["rounds"][r]["etas"], result["rounds"][r]["etas"]);
  for (const char* file :
       {"/round-1/slerp/model.safetensors", "/round-2/child-2/last/model.safetensors", "/round-2/slerp/model.safetensors"})
    EXPECT_EQ(read_file(scratch / "killed" + file), read_file(scratch / "whole" + file)) << file;
}

TEST(WarpCommand, RefusesWithTheLineOfTheRecipe) {
  const Scratch scratch;
  const std::string file = scratch.write("warp.yaml", "model: m\nout: o\ntrain: {}\nchildren: [{}, {}]\nevaluate: {text: t}\n");
  expect_refused({"warp", file}, {"warp.yaml", "\"data\""});
  expect_refused({"warp", scratch / "none.yaml"}, {"none.yaml"});
  expect_refused({"warp"}, {"CONFIG"});
}

TEST(MergeSweep, PrintsATableAndDraws) {
  const Scratch scratch;
  const std::string recipe = scratch.write("scale.yml", "merge_method: passthrough\nmodels: [{model: " + kTales + "}]\n"),
                    text = scratch.write("text.txt", "Once upon a time there was a king who had three sons.");
  const Outcome table = vitrine({"merge", recipe, "--sweep", "scale=0.5,1", "--text", text, "--svg", scratch / "sweep.svg"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_CONTAINS(table.out, "perplexity");
  EXPECT_CONTAINS(table.out, "0.5");
  EXPECT_CONTAINS(read_file(scratch / "sweep.svg"), "passthrough for values of scale");
  const Json points = vitrine({"merge", recipe, "--sweep", "scale=1,0.5", "--text", text, "--json"}).json().at("points");
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0]["distance"], 0);
  EXPECT_NEAR(points[0]["perplexity"].get<double>(), std::exp(points[0]["loss"].get<double>()), 1e-9);
  EXPECT_GT(points[1]["loss"], points[0]["loss"]);
  expect_refused({"merge", recipe, "--sweep", "scale=1"}, {"--text FILE"});
  expect_refused({"merge", recipe, "--sweep", "scal=1", "--text", text}, {"did you mean scale?"});
  expect_refused({"merge", recipe, "--sweep", "scale", "--text", text}, {"--sweep is \"scale\""});
  expect_refused({"merge", recipe, "--sweep", "scale=1", "--text", text, "--dry-run"}, {"without --dry-run"});
  expect_refused({"merge", recipe, scratch / "out", "--svg", scratch / "x.svg"}, {"--sweep"});
}

}  // namespace
}  // namespace vitrine
