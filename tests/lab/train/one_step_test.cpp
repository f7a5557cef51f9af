// One step of gradient descent on one prompt against transformers and torch in float64.
#include "train/one_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

LearnerOptions descent() {
  LearnerOptions options;
  options.optimizer = {.kind = OptimizerOptions::Kind::sgd, .weight_decay = 0};
  options.threads = 2;
  options.dropout = false;
  return options;
}

TEST(OneStep, MatchesTorch) {
  const Json golden = read_json(std::string(VITRINE_GOLDEN) + "/train/one_step.json");
  const auto prompt = golden.at("prompt").get<std::vector<int32_t>>(), target = golden.at("target").get<std::vector<int32_t>>();
  for (const auto& [name, want] : golden.at("models").items()) {
    SCOPED_TRACE(name);
    ModelFiles files = resolve_model(Golden::open(name).model());
    for (const char* rate : {"embd_pdrop", "attn_pdrop", "resid_pdrop", "attention_dropout"})  // which the step is without
      if (files.config.contains(rate)) files.config[rate] = 0.5;
    Learner learner(open_model(std::move(files)), descent());
    const OneStep got = take_one_step(learner, prompt, target, golden.at("lr").get<double>(), 5);
    const auto expect = [&](const std::vector<double>& numbers, const char* key) {
      const auto wanted = want.at(key).get<std::vector<double>>();
      ASSERT_EQ(numbers.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(numbers[i], wanted[i], 1e-4 * (1 + std::abs(wanted[i]))) << key;
    };
    std::vector<double> before, after;
    for (const OneStep::Target& one : got.target) {
      before.push_back(one.logprob_before);
      after.push_back(one.logprob_after);
    }
    expect(before, "target_before");
    expect(after, "target_after");
    EXPECT_NEAR(got.gradient_norm, want.at("gradient_norm").get<double>(), 1e-4 * got.gradient_norm);
    EXPECT_LT(got.loss_after, got.loss_before);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(got.before.at(i).token, want.at("top_before").at(i));
      EXPECT_EQ(got.after.at(i).token, want.at("top_after").at(i));
    }
    double squares = 0;
    for (const OneStep::Part& part : got.layers) {
      squares += part.gradient_norm * part.gradient_norm;
      if (!part.name.starts_with("blocks.")) continue;
      const double norm = want.at("layers").at(part.name.substr(7)).get<double>();
      EXPECT_NEAR(part.gradient_norm, norm, 1e-4 * norm) << part.name;
    }
    EXPECT_NEAR(std::sqrt(squares), got.gradient_norm, 1e-9 * got.gradient_norm);
  }
}

// Nothing but the weights goes from step to step.
TEST(OneStep, StepsInSlicesAreThoseOfOneRun) {
  const std::vector<int32_t> prompt = {5, 3, 7, 9, 11}, target = {12, 2}, follow = {12, 4};
  const auto learner = [] { return std::make_unique<Learner>(open_model(Golden::open("gemma2").model()), descent()); };
  const auto whole = learner(), sliced = learner();
  const OneStep run = take_steps(*whole, prompt, target, 0.05, 5, 3, follow);
  ASSERT_EQ(run.losses.size(), 6u);
  ASSERT_EQ(run.followed.size(), 2u);
  OneStep last;
  size_t at = 0;
  for (const int64_t steps : {1, 0, 3, 1}) {
    last = take_steps(*sliced, prompt, target, 0.05, steps, 3, follow);
    ASSERT_EQ(last.losses.size(), static_cast<size_t>(steps) + 1);
    for (size_t i = 0; i < last.losses.size(); ++i) {
      EXPECT_EQ(last.losses[i], run.losses[at + i]);
      for (size_t k = 0; k < follow.size(); ++k) {
        EXPECT_EQ(last.followed[k].token, follow[k]);
        EXPECT_EQ(last.followed[k].logprobs[i], run.followed[k].logprobs[at + i]);
      }
    }
    at += static_cast<size_t>(steps);
  }
  EXPECT_EQ(last.gradient_norm, run.gradient_norm);
  EXPECT_EQ(last.after.at(0).logprob, run.after.at(0).logprob);
  const size_t n = whole->parameters().size();
  EXPECT_TRUE(std::equal(whole->parameters().weights(), whole->parameters().weights() + n, sliced->parameters().weights()));
}

TEST(OneStep, FollowsTheTargetAndTheAnswerBefore) {
  Learner learner(open_model(Golden::open("gemma2").model()), descent());
  const std::vector<int32_t> prompt = {5, 3, 7, 9, 11}, target = {12};
  const OneStep run = take_steps(learner, prompt, target, 0.05, 40, 2);
  ASSERT_EQ(run.followed.size(), 2u);
  EXPECT_EQ(run.followed[0].token, 12);
  EXPECT_EQ(run.followed[1].token, run.before.at(0).token);
  EXPECT_NEAR(run.followed[1].logprobs.front(), run.before.at(0).logprob, 1e-5);
  EXPECT_EQ(run.after.at(0).token, 12);
  EXPECT_NEAR(run.followed[0].logprobs.back(), run.after.at(0).logprob, 1e-5);
  for (size_t i = 0; i < run.losses.size(); ++i) EXPECT_EQ(run.losses[i], -run.followed[0].logprobs[i]);
  EXPECT_EQ(run.loss_before, run.losses.front());
  EXPECT_EQ(run.loss_after, run.losses.back());
}

TEST(OneStep, RefusesWhatIsNoDescent) {
  LearnerOptions options = descent();
  options.optimizer.momentum = 0.9;
  Learner learner(open_model(Golden::open("llama").model()), options);
  const std::vector<int32_t> ids = {3, 5};
  EXPECT_CONTAINS(message_of<UsageError>([&] { take_one_step(learner, ids, ids, 0.1, 5); }), "sgd without momentum");
}

}  // namespace
}  // namespace vitrine
