// The loss of rewarded completions against TRL's GRPOTrainer and RLOOTrainer (tests/golden/train/make_grpo.py).
#include "train/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/golden.h"
#include "train/completions.h"
#include "train/config.h"
#include "train/learner.h"

namespace vitrine {
namespace {

Json policy_golden() { return read_json(std::string(VITRINE_GOLDEN) + "/train/grpo.json"); }
std::string policy_model() { return std::string(VITRINE_GOLDEN) + "/models/llama/model"; }

TrainConfig policy_config(const Json& gold, const std::string& section) {
  return parse_train_config(
      "model: m\ndata: {train: d}\nsequence_length: 64\nbatch: 8\nsteps: 10\nout: o\noptimizer: {lr: 1e-3}\n"
      "grpo: {reward: none, group: " +
          gold.at("group").dump() + ", max_tokens: " + gold.at("max_tokens").dump() + ", " + section + "}\n",
      "c.yaml");
}

std::vector<Completion> completions_of(const Json& gold, const Json& run, size_t call) {
  const Json& made = gold.at("calls").at(call);
  std::vector<Completion> all;
  for (size_t i = 0; i < made.at("completions").size(); ++i) {
    Completion& c = all.emplace_back(
        Completion{.prompt = run.at("prompts")[i], .ids = made.at("completions")[i], .reward = made.at("rewards")[i]});
    c.cut = std::ssize(c.ids) == gold.at("max_tokens").get<int64_t>();
  }
  return all;
}

TEST(PolicyGolden, TenStepsOfEveryLoss) {
  const Json gold = policy_golden();
  for (const Json& run : gold.at("runs")) {
    const auto section = run.at("section").get<std::string>();
    SCOPED_TRACE(section);
    const PolicyOptions options = *policy_config(gold, section).policy;
    LearnerOptions learning;
    learning.optimizer = {.weight_decay = 0};
    learning.threads = 2;
    Learner learner(open_model(policy_model()), learning);
    learner.set_policy(options);
    const Engine start(policy_model(), EngineOptions{.threads = 1});
    std::vector<Completion> completions;
    Batch batch;
    for (size_t step = 0; step < 10; ++step) {
      if (step % static_cast<size_t>(options.iterations) == 0) {
        completions = completions_of(gold, run, step / static_cast<size_t>(options.iterations));
        batch = batch_of(completions, options);
        if (options.beta > 0) batch.policy.reference = learner.label_logprobs(batch, start.model());
        if (options.iterations > 1) batch.policy.sampled_by = learner.label_logprobs(batch, learner.engine().model());
        Comm alone;
        add_advantages(completions, std::span(&batch, 1), options, alone);
      }
      const StepReport report = learner.step(std::span(&batch, 1), gold.at("lr").get<double>());
      const auto near = [&](double got, const char* key, double relative) {
        if (!run.contains(key)) return;
        const double want = run.at(key)[step].get<double>();
        EXPECT_NEAR(got, want, relative * std::max(1.0, std::abs(want))) << key << " " << step;
      };
      near(report.loss, "losses", 1e-4);
      near(report.gradient_norm, "grad_norm", 1e-3);
      ASSERT_TRUE(report.policy);
      if (options.loss != PolicyOptions::Loss::rloo) near(report.policy->kl, "kl", 1e-4);
      if (!options.drop_cut) near(report.policy->entropy, "entropy", 1e-4);
      if (options.loss != PolicyOptions::Loss::rloo) near(report.policy->clipped, "clipped", 1e-6);
    }
    const std::vector<double> norm = run.at("norm");
    const std::vector<Parameter>& all = learner.parameters().list();
    const auto last = std::ranges::find(all, "model.norm.weight", &Parameter::name);
    ASSERT_NE(last, all.end());
    ASSERT_EQ(last->count, norm.size());
    for (size_t i = 0; i < norm.size(); ++i) EXPECT_NEAR(learner.parameters().weights(*last)[i], norm[i], 1e-4) << i;
  }
}

// However the completions of a step are spread over batches and passes, it is the same step.
TEST(Policy, PartsOfAStepGiveTheLossOfTheWhole) {
  const Json gold = policy_golden();
  for (const char* section : {"loss_type: grpo", "loss_type: dapo", "loss_type: rloo"}) {
    SCOPED_TRACE(section);
    const PolicyOptions options = *policy_config(gold, section).policy;
    std::vector<Completion> completions = completions_of(gold, gold.at("runs")[0], 0);
    Batch whole = batch_of(completions, options);
    Comm alone;
    add_advantages(completions, std::span(&whole, 1), options, alone);
    EXPECT_EQ(counted_in(whole), 8);
    const std::vector<Batch> parts = parts_of(whole, 40);
    ASSERT_GT(parts.size(), 2u);
    const auto step = [&](std::span<const Batch> batches) {
      LearnerOptions learning;
      learning.threads = 2;
      Learner learner(open_model(policy_model()), learning);
      learner.set_policy(options);
      return learner.step(batches, 1e-3);
    };
    const StepReport at_once = step(std::span(&whole, 1)), in_parts = step(parts);
    EXPECT_NEAR(in_parts.loss, at_once.loss, 1e-6);
    EXPECT_NEAR(in_parts.gradient_norm, at_once.gradient_norm, 1e-4 * at_once.gradient_norm);
    EXPECT_NEAR(in_parts.policy->entropy, at_once.policy->entropy, 1e-5);
  }
}

TEST(Policy, AGroupWithoutADifferenceTeachesNothing) {
  PolicyOptions options{.group = 2};
  const std::vector<double> rewards = {1, 1, 0, 4};
  const std::vector<double> scaled = advantages_of(rewards, options, 0);
  EXPECT_EQ(scaled[0], 0);
  EXPECT_NEAR(scaled[3], 2 / (std::sqrt(8.0) + 1e-4), 1e-12);
  options.loss = PolicyOptions::Loss::rloo;
  EXPECT_EQ(advantages_of(rewards, options, 0), (std::vector<double>{0, 0, -4, 4}));
}

}  // namespace
}  // namespace vitrine
