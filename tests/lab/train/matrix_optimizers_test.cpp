// NorMuon and SOAP against pytorch_optimizer (tests/golden/optimizers/make_normuon_soap.py), and what they share with the others.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "support/close.h"
#include "train/run_support.h"
#include "train/support.h"
#include "train/thread_ranks.h"
#include "train/train.h"

namespace vitrine {
namespace {

using Kind = OptimizerOptions::Kind;

std::string optimizer_folder() { return std::string(VITRINE_GOLDEN) + "/optimizers/"; }
Json told(const std::string& name) { return read_json(optimizer_folder() + "normuon_soap.json").at(name); }

void expect_weights(const Learner& learner, const std::string& file, size_t least) {
  EXPECT_GE(expect_golden_weights(learner, optimizer_folder() + file), least);
}

LearnerOptions normuon_options(const std::string& name) {
  LearnerOptions options;
  options.optimizer = {.kind = Kind::normuon, .momentum = 0.95, .adamw_lr = 0.25};
  if (name == "qwen3") {
    options.optimizer.scale = OptimizerOptions::Scale::original;
    options.optimizer.momentum = 0.8;
    options.optimizer.neuron_beta = 0.9;
    options.optimizer.nesterov = false;
  }
  options.threads = 2;
  return options;
}

class NorMuonGolden : public testing::TestWithParam<const char*> {};

TEST_P(NorMuonGolden, TenSteps) {
  const std::string name = GetParam();
  const Golden gold = Golden::open(name);
  const Batch batch = golden_batch(gold.prompt("train"));
  Learner learner(open_model(gold.model()), normuon_options(name));
  const std::vector<double> losses = told(name).at("losses_before_each_step");
  ASSERT_EQ(losses.size(), 10u);
  for (const double want : losses) {
    EXPECT_NEAR(learner.step(std::span(&batch, 1), 1e-2).loss, want, 1e-4 * want);
  }
  expect_weights(learner, "normuon_" + name + ".safetensors", 6);
}

INSTANTIATE_TEST_SUITE_P(Every, NorMuonGolden, testing::Values("llama", "qwen3"),
                         [](const auto& test) { return std::string(test.param); });

// The same numbers as make_normuon_soap.py.
float noise(uint32_t i, uint32_t step, uint32_t which) {
  uint32_t x = (i + 1000003 * step + 7919 * which) * 2654435761u;
  x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  x ^= x >> 16;
  return static_cast<float>(static_cast<double>(x) / 0x1p32 - 0.5);
}

TEST(SoapGolden, TwelveSteps) {
  const Json gold = told("soap");
  LearnerOptions options;
  options.optimizer = {.kind = Kind::soap, .beta1 = 0.9, .beta2 = 0.95, .shampoo_beta = 0.8, .frequency = 4};
  options.optimizer.largest_side = gold.at("largest_side").get<int64_t>();
  options.threads = 2;
  Learner learner(open_model(Golden::open("llama").model()), options);
  for (uint32_t step = 1; step <= gold.at("steps").get<uint32_t>(); ++step) {
    std::fill_n(learner.parameters().gradients(), learner.parameters().size(), 0.0f);
    for (const Parameter& p : learner.parameters().list())
      for (uint32_t which = 0; which < 2; ++which) {
        if (p.name != gold.at("matrices")[which].get<std::string>()) continue;
        for (uint32_t i = 0; i < p.count; ++i)
          learner.parameters().gradients(p)[i] = noise(i, step, which) * 0.2f * static_cast<float>(step);  // half of it counts
      }
    learner.optimizer().step(learner.engine().context().pool(), 3e-3, 0.5, step);
  }
  expect_weights(learner, "soap.safetensors", 2);
}

class ByMatrices : public testing::TestWithParam<Kind> {
 protected:
  static OptimizerOptions options(Kind kind) { return {.kind = kind, .momentum = kind == Kind::soap ? 0 : 0.95, .frequency = 2}; }
};

TEST_P(ByMatrices, GiveTheSameBitsOnAnyNumberOfThreads) {
  for (const char* name : {"gpt2_a", "mixtral"}) {
    const Golden gold = Golden::open(name);
    const Batch batch = golden_batch(gold.prompt("train"));
    std::vector<float> first;
    for (const int threads : {1, 3}) {
      LearnerOptions o;
      o.optimizer = options(GetParam());
      o.threads = threads;
      Learner learner(open_model(gold.model()), o);
      double before = 0, after = 0;
      for (int i = 0; i < 5; ++i) (i == 0 ? before : after) = learner.step(std::span(&batch, 1), 3e-3).loss;
      EXPECT_LT(after, before) << name;
      const Parameters& parameters = learner.parameters();
      const std::vector<float> now(parameters.weights(), parameters.weights() + parameters.size());
      if (first.empty()) first = now;
      EXPECT_EQ(std::memcmp(now.data(), first.data(), now.size() * sizeof(float)), 0) << name << threads;
    }
  }
}

TEST_P(ByMatrices, RanksLearnWhatOneLearns) {
  const Golden gold = Golden::open("llama");
  const Batch batch = golden_batch(gold.prompt("train"));
  LearnerOptions o;
  o.optimizer = options(GetParam());
  o.threads = 1;
  Learner alone(open_model(gold.model()), o);
  std::vector<double> losses;
  for (int i = 0; i < 4; ++i) losses.push_back(alone.step(std::span(&batch, 1), 1e-3).loss);
  ThreadRanks::run_all(2, [&](Comm& comm) {
    LearnerOptions mine = o;
    mine.comm = &comm;
    Learner learner(open_model(gold.model()), mine);
    // What a gradient lacks of rank leaves some of SOAP's eigenvectors to rounding; so the sum over ranks must not round
    // otherwise.
    const Batch part = GetParam() != Kind::soap ? part_of(batch, comm.rank(), 2) : comm.rank() == 0 ? batch : Batch();
    for (const double want : losses) EXPECT_NEAR(learner.step(std::span(&part, 1), 1e-3).loss, want, 1e-4 * want);
    size_t shown = 0, mine_here = 0;
    for (const Optimizer::Aside& aside : learner.optimizer().asides()) mine_here += aside.values.empty() ? 0 : 1;
    EXPECT_LT(mine_here, learner.optimizer().asides().size());
    learner.each_state({}, [&](const Optimizer::Aside& aside, const float* values) {
      double sum = 0;
      for (size_t i = 0; i < aside.size(); ++i) sum += static_cast<double>(std::abs(values[i]));
      EXPECT_GT(sum, 0) << aside.name;
      ++shown;
    });
    if (comm.rank() == 0) {
      EXPECT_EQ(shown, learner.optimizer().asides().size());
    }
  });
}

TEST_P(ByMatrices, ARunGoesOnToTheSameBits) {
  const Scratch scratch;
  small_data(scratch, "data", 40, 1);
  small_data(scratch, "valid", 6, 2);
  const std::string name = GetParam() == Kind::soap ? "soap, frequency: 3" : "normuon";
  const auto config = [&](const std::string& out) {
    std::string text = small_config(scratch, scratch / out);
    text.replace(text.find("name: adamw"), 11, "name: " + name);
    return parse_train_config(text, "config.yaml");
  };
  train(config("whole"), false);
  train_up_to(config("cut"), 5);
  train(config("cut"), true);
  EXPECT_EQ(weights_bytes(scratch / "cut/last"), weights_bytes(scratch / "whole/last"));
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "whole"));
}

INSTANTIATE_TEST_SUITE_P(Every, ByMatrices, testing::Values(Kind::normuon, Kind::soap),
                         [](const auto& test) { return std::string(test.param == Kind::soap ? "Soap" : "NorMuon"); });

TEST(ByMatricesConfig, KeysAreRead) {
  const auto parse = [](const std::string& optimizer) {
    return parse_train_config(
               "model: m\ndata: {train: d}\nsequence_length: 8\nbatch: 2\nsteps: 10\nout: o\noptimizer: {" + optimizer + "}\n",
               "c.yaml")
        .optimizer;
  };
  const auto refused = [&](const std::string& optimizer) { return message_of<FileError>([&] { parse(optimizer); }); };
  const OptimizerOptions normuon = parse("name: normuon, lr: 1e-2, neuron_beta: 0.9, iterations: 4, adamw_lr: 1e-3");
  EXPECT_EQ(normuon.kind, Kind::normuon);
  EXPECT_EQ(normuon.momentum, 0.95);
  EXPECT_EQ(normuon.neuron_beta, 0.9);
  EXPECT_DOUBLE_EQ(normuon.adamw_lr, 0.1);
  const OptimizerOptions soap = parse("name: soap, lr: 3e-3, betas: [0.9, 0.99], frequency: 5, largest_side: 100");
  EXPECT_EQ(soap.kind, Kind::soap);
  EXPECT_EQ(soap.shampoo_beta, 0.99);
  EXPECT_EQ(soap.frequency, 5);
  EXPECT_EQ(soap.largest_side, 100);
  EXPECT_EQ(parse("name: soap, lr: 1, shampoo_beta: 0.5").beta1, 0.95);
  EXPECT_EQ(parse("name: soap, lr: 1, shampoo_beta: 0.5").shampoo_beta, 0.5);
  EXPECT_CONTAINS(refused("name: muon, lr: 1, neuron_beta: 0.5"), "\"optimizer.neuron_beta\"");
  EXPECT_CONTAINS(refused("name: soap, lr: 1, momentum: 0.5"), "\"optimizer.momentum\"");
  EXPECT_CONTAINS(refused("name: soap, lr: 1, frequency: 0"), "\"optimizer.frequency\"");
  EXPECT_CONTAINS(refused("name: normuon, lr: 1, neuron_beta: 1"), "expected a number from 0 to 0.999999");
  EXPECT_CONTAINS(refused("name: soup, lr: 1"), "soap");
}

}  // namespace
}  // namespace vitrine
