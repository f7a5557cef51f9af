// WARP: rounds of a tiny model to their end, what they write, going on to the same bits, and recipes that are refused.
#include "warp/warp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "io/safetensors.h"
#include "merge/distance.h"
#include "support/golden.h"
#include "support/random_model.h"
#include "train/run_support.h"

namespace vitrine {
namespace {

Json tiny_gpt2() {
  return {{"model_type", "gpt2"}, {"n_embd", 16}, {"n_layer", 2}, {"n_head", 2}, {"vocab_size", 61}, {"n_positions", 32}};
}

std::string random_gpt2(const std::string& directory, uint64_t seed = 1, const Json& config = tiny_gpt2()) {
  std::filesystem::create_directories(directory);
  write_random_model(directory, config, seed);
  return directory;
}

// A recipe of two rounds with two children that learn from data of their own.
class Warp : public testing::Test {
 protected:
  Warp() {
    small_data(scratch_, "first", 30, 1);
    small_data(scratch_, "second", 30, 2);
    small_data(scratch_, "valid", 6, 3);
    random_gpt2(scratch_ / "model");
  }

  std::string recipe(const std::string& out, const std::string& extra = "") const {
    return "model: " + scratch_ / "model" + "\nout: " + scratch_ / out +
           "\nrounds: 2\nthreads: 2\n"
           "train:\n"
           "  sequence_length: 16\n  batch: 2\n  steps: 4\n  threads: 2\n"
           "  optimizer: {lr: 1e-2}\n  ema: 0.8\n  kl_to: ema\n  kl_weight: 0.1\n"
           "children:\n"
           "  - data: {train: " +
           scratch_ / "first" +
           "}\n"
           "  - data: {train: " +
           scratch_ / "second" +
           "}\n"
           "liti: {etas: [0, 0.25, 1], next: 0.5}\n"
           "evaluate: {data: " +
           scratch_ / "valid" + ", kl: true}\n" + extra;
  }
  WarpConfig config(const std::string& out, const std::string& extra = "") const {
    return parse_warp_config(recipe(out, extra), "warp.yaml");
  }

  Scratch scratch_;
};

std::vector<float> numbers_of(const std::string& model, const std::string& tensor) {
  const Checkpoint file = open_safetensors(model + "/model.safetensors");
  return golden_tensor(file, tensor).values;
}

TEST_F(Warp, RunsItsRoundsAndMeasuresThem) {
  const WarpConfig c = config("run", "write: [1]\n");
  const WarpResult result = run_warp(c, false);
  ASSERT_EQ(result.rounds.size(), 2u);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(names_under(c.out), (std::vector<std::string>{"round-1", "round-2", "warp.json"}));
  EXPECT_EQ(names_under(c.out + "/round-2"),
            (std::vector<std::string>{"child-1", "child-1.yaml", "child-2", "child-2.yaml", "liti-0.5", "liti-1", "slerp"}));
  const WarpRound &one = result.rounds[0], &two = result.rounds[1];
  EXPECT_EQ(one.init, c.model);
  EXPECT_EQ(two.init, c.out + "/round-1/liti-0.5");
  ASSERT_EQ(one.points.size(), 4u);  // `next` is one of them
  // eta 0 is the model that the round began from.
  EXPECT_EQ(one.points[0].measure.loss, result.initial.loss);
  EXPECT_EQ(one.points[0].measure.distance, 0);
  EXPECT_EQ(*one.points[0].measure.divergence, 0);
  EXPECT_EQ(two.points[0].measure.loss, one.points[2].measure.loss);
  EXPECT_EQ(two.points[0].measure.distance, one.points[2].measure.distance);
  // The distance grows with eta, the divergence does; SLERP leaves the children's plane, not far.
  const double whole = one.points[3].measure.distance;
  EXPECT_GT(whole, 0);
  EXPECT_NEAR(one.points[1].measure.distance, 0.25 * whole, 1e-5 * whole);
  EXPECT_NEAR(one.points[2].measure.distance, 0.5 * whole, 1e-5 * whole);
  EXPECT_LT(*one.points[1].measure.divergence, *one.points[3].measure.divergence);
  // The children learned.
  for (const WarpRound::Parent& parent : one.children) EXPECT_LT(parent.measure.loss, result.initial.loss);

  const std::string name = "transformer.h.0.mlp.c_fc.weight";
  const std::vector<float> init = numbers_of(c.model, name), slerp = numbers_of(c.out + "/round-1/slerp", name),
                           half = numbers_of(one.model, name);
  for (size_t i = 0; i < init.size(); ++i) EXPECT_NEAR(half[i], 0.5 * (init[i] + slerp[i]), 1e-6);
  EXPECT_EQ(numbers_of(c.out + "/round-1/liti-1", name), slerp);
}

TEST_F(Warp, ChildrenCanBeTrainedAgainByTheirFiles) {
  const WarpConfig c = config("run");
  run_warp(c, false);
  TrainConfig child = read_train_config(c.out + "/round-2/child-2.yaml");
  EXPECT_EQ(child.model, c.out + "/round-1/liti-0.5");
  EXPECT_EQ(child.seed, 4u);  // 1, 2 in the first round
  child.out = scratch_ / "again";
  train(child, false);
  EXPECT_EQ(read_file(scratch_ / "again/last/model.safetensors"), read_file(c.out + "/round-2/child-2/last/model.safetensors"));
}

TEST_F(Warp, TakesTheLowestLossAndTheAverages) {
  const WarpConfig c = config("run", "merge: ema\n");
  EXPECT_EQ(run_warp(c, false).rounds[0].children[0].model, c.out + "/round-1/child-1/step-4/ema");
  std::string text = recipe("best");
  text.replace(text.find("next: 0.5"), 9, "next: best");
  const WarpResult best = run_warp(parse_warp_config(text, "warp.yaml"), false);
  for (const WarpRound& round : best.rounds) {
    double lowest = 1e9, chosen = 0;
    for (const WarpRound::Point& point : round.points) {
      lowest = std::min(lowest, point.measure.loss);
      if (point.eta == round.next) chosen = point.measure.loss;
    }
    EXPECT_EQ(chosen, lowest);
  }
}

// Every place at which a run asks whether it should stop is a place at which it may be killed.
TEST_F(Warp, GoesOnToTheSameBits) {
  const WarpConfig whole = config("whole");
  run_warp(whole, false);
  struct Killed {};
  for (const bool killed : {false, true}) {
    const WarpConfig c = config(killed ? "killed" : "stopped");
    int64_t asked = 0, limit = 3, runs = 0;
    WarpEvents events;
    events.stop = [&] {
      if (++asked < limit) return false;
      if (killed) throw Killed{};
      return true;
    };
    for (bool done = false; !done; ++runs, asked = 0, limit += 2) {
      ASSERT_LT(runs, 50);
      try {
        done = !run_warp(c, runs > 0, events).stopped;
      } catch (const Killed&) {
      }
    }
    EXPECT_GT(runs, 3);
    for (const char* file : {"/round-1/slerp/model.safetensors", "/round-2/child-1/last/model.safetensors",
                             "/round-2/slerp/model.safetensors", "/round-2/liti-0.5/model.safetensors"})
      EXPECT_EQ(read_file(c.out + file), read_file(whole.out + file)) << file;
    const Json a = read_json(c.out + "/warp.json"), b = read_json(whole.out + "/warp.json");
    EXPECT_EQ(a["initial"], b["initial"]);
    for (size_t r = 0; r < 2; ++r) EXPECT_EQ(a["rounds"][r]["etas"], b["rounds"][r]["etas"]);
  }
}

// In a merge's recipe "a+b" is the model a with the adapter b.
TEST_F(Warp, FoldersMayHaveAPlusInTheirNames) {
  std::string text = recipe("lr+wd");
  text.replace(text.find("rounds: 2"), 9, "rounds: 1");
  EXPECT_EQ(run_warp(parse_warp_config(text, "warp.yaml"), false).rounds.size(), 1u);
}

TEST_F(Warp, MoreRoundsMayBeAskedFor) {
  std::string text = recipe("run");
  text.replace(text.find("rounds: 2"), 9, "rounds: 1");
  const WarpResult first = run_warp(parse_warp_config(text, "warp.yaml"), false);
  int64_t told = 0, trained = 0;
  WarpEvents events;
  events.measured = [&](const WarpResult& result) { told += static_cast<int64_t>(result.rounds.size()); };
  events.child = [&](int64_t round, int64_t) {
    EXPECT_EQ(round, 2);
    ++trained;
    return TrainEvents{};
  };
  const WarpResult second = run_warp(config("run"), true, events);
  ASSERT_EQ(second.rounds.size(), 2u);
  EXPECT_EQ(second.rounds[0].points[1].measure.loss, first.rounds[0].points[1].measure.loss);
  EXPECT_EQ(told, 3);
  EXPECT_EQ(trained, 2);
}

TEST_F(Warp, RefusesToGoOnWithSomethingElse) {
  const auto refused = [&](const WarpConfig& c, bool resume, const std::string& part) {
    EXPECT_CONTAINS(message_of<InputError>([&] { run_warp(c, resume); }), part);
  };
  const WarpConfig c = config("run");
  run_warp(c, false);
  refused(c, false, "holds a run already. Go on with it by --resume");
  std::string text = recipe("run");
  text.replace(text.find("lr: 1e-2"), 8, "lr: 2e-2");
  refused(parse_warp_config(text, "warp.yaml"), true, "was begun with another recipe");
  random_gpt2(scratch_ / "model", 2);
  refused(c, true, "was begun with another initial model");
  random_gpt2(scratch_ / "model");
  small_data(scratch_, "valid", 7, 3);
  refused(c, true, "was begun with another text");
  scratch_.write("run/warp.json", "{\"version\": 1}");
  refused(c, true, "warp.json");
  scratch_.write("run/warp.json", "nonsense");
  refused(c, true, "warp.json");
}

TEST_F(Warp, NeedsATokenizerForAText) {
  std::string text = recipe("run");
  const size_t at = text.find("evaluate: {data: ");
  text.replace(at, text.find(", kl", at) - at, "evaluate: {text: " + scratch_.write("text.txt", "Once upon a time"));
  EXPECT_CONTAINS(message_of<InputError>([&] { run_warp(parse_warp_config(text, "warp.yaml"), false); }), "tokenizer");
}

// What a recipe must not say, and a part of the message.
TEST_F(Warp, RecipesAreChecked) {
  const std::string good = recipe("run");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  const auto refused = [](const std::string& text, const std::string& part) {
    EXPECT_CONTAINS(message_of<InputError>([&] { parse_warp_config(text, "warp.yaml"); }), part);
  };
  refused("", "the document is empty");
  refused("[1, 2]", "warp.yaml:1");
  refused(changed("rounds: 2", "rounds: 0"), "warp.yaml:3: \"rounds\" is \"0\"");
  refused(changed("rounds: 2", "rounds: 99999999999999999999"), "\"rounds\"");
  refused(changed("rounds: 2", "round: 2"), "Did you mean \"rounds\"?");
  // Errors in a child's configuration name the line of the recipe, be it shared or the child's own.
  refused(changed("  batch: 2", "  batch: none"), "warp.yaml:7: \"train.batch\" is \"none\"");
  refused(changed("  batch: 2", "  batsh: 2"), "warp.yaml:7");
  refused(changed("  - data: {train: " + scratch_ / "first" + "}", "  - data: {train: x, documents: perhaps}"),
          "warp.yaml:15: \"train.data.documents\"");
  refused(changed("  - data: {train: " + scratch_ / "first" + "}", "  - 7"), "children[0]");
  refused(changed("  - data: {train: " + scratch_ / "second" + "}\n", ""), "expected 2 to 64 children");
  refused(changed("  steps: 4", "  steps: 4\n  model: other"), "\"train.model\"");
  refused(changed("  steps: 4", "  steps: 4\n  lora: {rank: 2}"), "\"train.lora\"");
  refused(changed("  steps: 4", "  steps: 4\n  seed: -1"), "\"train.seed\" is \"-1\"");
  refused(changed("etas: [0, 0.25, 1]", "etas: []"), "\"liti.etas\"");
  refused(changed("etas: [0, 0.25, 1]", "etas: [0, 0.25, 0.25]"), "twice");
  refused(changed("etas: [0, 0.25, 1]", "etas: [0, nan]"), "\"liti.etas[1]\"");
  refused(changed("etas: [0, 0.25, 1]", "etas: [0, 3]"), "from 0");
  refused(changed("next: 0.5", "next: lowest"), "or best");
  refused(changed("next: 0.5", "next: -1"), "\"liti.next\"");
  refused(changed("kl: true", "kl: 3"), "\"evaluate.kl\"");
  refused(changed("kl: true", "text: a.txt"), "either \"text\"");
  refused(changed("kl: true", "window: 1"), "\"evaluate.window\" is \"1\"");
  refused(good + "merge: newest\n", "\"merge\"");
  refused(good + "merge: best\n", "eval_every");
  refused(good + "slerp: {t: 2}\n", "\"slerp.t\"");
  refused(changed("  ema: 0.8\n  kl_to: ema\n  kl_weight: 0.1\n", "") + "merge: ema\n", "train.ema");
  refused(good + "slerp: {t: 0.5}\nwrite: [5]\n", "\"write[0]\"");
  refused(changed("children:\n", "children:\n  - {seed: 9, data: {train: x}}\n") + "slerp: {t: 0.5}\n",
          "with more than two children");
}

TEST(WeightDistance, IsTheNormOfTheDifference) {
  const Scratch scratch;
  random_gpt2(scratch / "a");
  random_gpt2(scratch / "b", 2);
  Json wider = tiny_gpt2();
  wider["n_embd"] = 32;
  random_gpt2(scratch / "c", 1, wider);
  const MergeInput a(ModelReference{scratch / "a", ""});
  const Checkpoint same = open_safetensors(scratch / "a/model.safetensors"),
                   other = open_safetensors(scratch / "b/model.safetensors"),
                   large = open_safetensors(scratch / "c/model.safetensors");
  EXPECT_EQ(weight_distance(same, a), 0.0);
  double sum = 0;
  for (const auto& [name, tensor] : same.tensors()) {
    const GoldenTensor x = golden_tensor(same, name), y = golden_tensor(other, name);
    for (size_t i = 0; i < x.size(); ++i) sum += std::pow(static_cast<double>(x.values[i]) - static_cast<double>(y.values[i]), 2);
  }
  EXPECT_NEAR(*weight_distance(other, a), std::sqrt(sum), 1e-9);
  EXPECT_FALSE(weight_distance(large, a));
}

}  // namespace
}  // namespace vitrine
