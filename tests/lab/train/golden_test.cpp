// Ten steps of every golden model against torch.optim, from the same weights on the same batch.
#include <gtest/gtest.h>

#include <cmath>

#include "support/close.h"
#include "train/support.h"
#include "train/thread_ranks.h"

namespace vitrine {
namespace {

class GoldenTraining : public testing::TestWithParam<std::string> {};

// The losses before each step; the classic decoders' file keeps them elsewhere.
std::vector<double> losses(const Json& train, const char* optimizer) {
  return train.contains("losses_before_each_step") ? train.at("losses_before_each_step").at(optimizer).get<std::vector<double>>()
                                                   : train.at(optimizer).at("losses_before_each_step").get<std::vector<double>>();
}

// 1e-4 of the tensor's largest magnitude, or three times what a disturbance of the start by 1e-7 does to the reference.
double allowed(const Json& train, const std::string& name, const char* when, const GoldenTensor& want) {
  double largest = 0;
  for (const float value : want) largest = std::max(largest, std::abs(static_cast<double>(value)));
  double noise = 0;
  for (const auto& [key, value] : train.items())
    if (key.starts_with("noise_") && value.contains(name)) noise = value.at(name).at(when).get<double>();
  return std::max(1e-4 * largest, 3 * noise);
}

void expect_weights(const Learner& learner, const Checkpoint& expected, const Json& train, const std::string& when) {
  for (const Parameter& p : learner.parameters().list()) {
    SCOPED_TRACE(when + " " + p.name);
    if (p.constant) {  // no parameter of the reference either
      EXPECT_EQ(expected.find(when + "/" + p.name), nullptr);
      continue;
    }
    const GoldenTensor want = golden_tensor(expected, when + "/" + p.name);
    ASSERT_EQ(p.shape, want.shape);
    std::vector<float> got(learner.parameters().weights(p), learner.parameters().weights(p) + p.count),
        wanted(want.begin(), want.end());
    if (p.name.ends_with("c_attn.bias") ||
        p.name.ends_with("in_proj_bias")) {  // the key bias has a true gradient of zero: AdamW moves it by noise alone
      const size_t third = p.count / 3;
      for (size_t i = third; i < 2 * third; ++i) got[i] = wanted[i];
    }
    EXPECT_CLOSE(got, wanted, (Tolerance{.abs = allowed(train, p.name, when.c_str(), want), .rel = 0}));
  }
}

// The load-balancing loss of experts is part of the loss where output_router_logits says so (tests/golden/experts/make.py).
TEST(ExpertTraining, BalancesTheExpertsAsTransformersDoes) {
  const Golden gold = Golden::open("mixtral");
  const Json told = read_json(std::string(VITRINE_GOLDEN) + "/experts/router_loss.json");
  for (const bool recompute : {false, true}) {
    ModelFiles files = resolve_model(gold.model());
    files.config["output_router_logits"] = true;
    files.config["router_aux_loss_coef"] = told.at("coefficient");
    LearnerOptions options;
    options.optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decay = {"*"}};
    options.threads = 2;
    options.recomputed_layers = recompute ? Tape::kAllBlocks : 0;
    Learner learner(open_model(std::move(files)), options);
    const Batch batch = golden_batch(gold.prompt("train"));
    for (const Json& loss : told.at("losses_before_each_step")) {
      const double want = loss.get<double>();
      EXPECT_NEAR(learner.step(std::span(&batch, 1), 1e-3).loss, want, 1e-4 * want);
    }
  }
}

TEST_P(GoldenTraining, TenAdamWSteps) {
  const Golden gold = Golden::open(GetParam());
  const Json train = gold.json("train");
  const Checkpoint expected = gold.train();
  const std::vector<double> wanted = losses(train, "adamw");
  LearnerOptions options;
  options.optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decay = {"*"}};
  options.threads = 2;
  Learner learner(open_model(gold.model()), options);
  const Batch batch = golden_batch(gold.prompt("train"));
  for (size_t i = 0; i < 10; ++i) {
    const StepReport report = learner.step(std::span(&batch, 1), 1e-3);
    EXPECT_NEAR(report.loss, wanted.at(i), 1e-4 * wanted.at(i)) << "before step " << i + 1;
    if (i == 0 && train.contains("global_grad_norm")) {
      const double norm = train.at("global_grad_norm").get<double>();
      EXPECT_NEAR(report.gradient_norm, norm, 1e-4 * norm);
    }
    if (i == 0) expect_weights(learner, expected, train, "adamw1");
  }
  expect_weights(learner, expected, train, "adamw10");
}

// The same ten steps by several ranks: the reference's losses and weights, and this program's own alone to rounding.
TEST_P(GoldenTraining, TenAdamWStepsOnSeveralRanks) {
  const Golden gold = Golden::open(GetParam());
  const Json train = gold.json("train");
  const Checkpoint expected = gold.train();
  const std::vector<double> wanted = losses(train, "adamw");
  LearnerOptions options;
  options.optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decay = {"*"}};
  options.threads = 1;
  const Batch batch = golden_batch(gold.prompt("train"));
  ASSERT_GE(batch.lengths.size(), 2u);
  std::vector<double> alone;
  Learner one(open_model(gold.model()), options);
  for (size_t i = 0; i < 10; ++i) alone.push_back(one.step(std::span(&batch, 1), 1e-3).loss);
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    ThreadRanks::run_all(ranks, [&](Comm& comm) {
      LearnerOptions mine = options;
      mine.comm = &comm;
      mine.recomputed_layers = (ranks == 4) ? Tape::kAllBlocks : 0;
      Learner learner(open_model(gold.model()), mine);
      const Batch part = part_of(batch, comm.rank(), ranks);
      for (size_t i = 0; i < 10; ++i) {
        const StepReport report = learner.step(std::span(&part, 1), 1e-3);
        if (comm.rank() != 0) continue;
        EXPECT_NEAR(report.loss, wanted.at(i), 1e-4 * wanted.at(i)) << "before step " << i + 1;
        EXPECT_NEAR(report.loss, alone.at(i), 1e-5 * alone.at(i)) << "before step " << i + 1;
      }
      if (comm.rank() == 0) expect_weights(learner, expected, train, "adamw10");
    });
  }
}

TEST_P(GoldenTraining, TenSgdSteps) {
  const Golden gold = Golden::open(GetParam());
  const Json train = gold.json("train");
  const std::vector<double> wanted = losses(train, "sgd");
  // Where rounding changes which experts are chosen, transformers' own losses in float32 are that far from those in float64;
  // three times as much is allowed, as for weights.
  const auto noise = train.at("sgd").value("noise_of_losses", std::vector<double>(wanted.size(), 0.0));
  LearnerOptions options;
  options.optimizer = {
      .kind = OptimizerOptions::Kind::sgd, .momentum = train.at("sgd").value("momentum", 0.0), .weight_decay = 0};
  options.threads = 1;
  Learner learner(open_model(gold.model()), options);
  const Batch batch = golden_batch(gold.prompt("train"));
  for (size_t i = 0; i < 10; ++i)
    EXPECT_NEAR(learner.step(std::span(&batch, 1), 0.05).loss, wanted.at(i),
                std::max(1e-4 * std::max(1.0, wanted.at(i)), 3 * noise.at(i)))
        << "before step " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(Every, GoldenTraining, testing::ValuesIn(Golden::all()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace vitrine
