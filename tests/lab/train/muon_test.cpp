// Muon against torch.optim.Muon (tests/golden/optimizers/make_muon.py), and what it must share with the other optimizers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/close.h"
#include "train/orthogonal.h"
#include "train/support.h"
#include "train/thread_ranks.h"

namespace vitrine {
namespace {

std::string muon_folder() { return std::string(VITRINE_GOLDEN) + "/optimizers/"; }

LearnerOptions muon_options(const std::string& name, const Json& told) {
  LearnerOptions options;
  OptimizerOptions& o = options.optimizer;
  o = {.kind = OptimizerOptions::Kind::muon, .momentum = 0.95, .adamw_lr = told.at("adamw_lr").get<double>() / 1e-2};
  if (name == "gpt2_a") {
    o.nesterov = false;
    o.iterations = 3;
  }
  if (name == "qwen3") {
    o.scale = OptimizerOptions::Scale::original;
    o.momentum = 0.8;
  }
  options.threads = 2;
  return options;
}

void expect_weights(const Learner& learner, const std::string& name) {
  const Checkpoint expected = open_safetensors(muon_folder() + "muon_" + name + ".safetensors");
  size_t compared = 0;
  for (const Parameter& p : learner.parameters().list()) {
    if (expected.find(p.name) == nullptr && expected.find("transformer." + p.name) == nullptr) continue;
    SCOPED_TRACE(name + " " + p.name);
    const GoldenTensor want = golden_tensor(expected, expected.find(p.name) != nullptr ? p.name : "transformer." + p.name);
    std::vector<float> got(learner.parameters().weights(p), learner.parameters().weights(p) + p.count),
        wanted(want.begin(), want.end());
    double largest = 0;
    for (const float x : wanted) largest = std::max(largest, std::abs(static_cast<double>(x)));
    if (p.name.ends_with("c_attn.bias"))  // the key bias has a true gradient of zero: AdamW moves it by noise alone
      for (size_t i = p.count / 3; i < 2 * (p.count / 3); ++i) got[i] = wanted[i];
    EXPECT_CLOSE(got, wanted, (Tolerance{.abs = 1e-4 * largest, .rel = 0}));
    ++compared;
  }
  EXPECT_GE(compared, 8u);
}

class MuonGolden : public testing::TestWithParam<const char*> {};

TEST_P(MuonGolden, TenSteps) {
  const std::string name = GetParam();
  const Golden gold = Golden::open(name);
  const Json told = read_json(muon_folder() + "muon.json").at(name);
  const Batch batch = golden_batch(gold.prompt("train"));
  Learner learner(open_model(gold.model()), muon_options(name, told));
  for (const Json& loss : told.at("losses_before_each_step")) {
    const double want = loss.get<double>();
    EXPECT_NEAR(learner.step(std::span(&batch, 1), 1e-2).loss, want, 1e-4 * want);
  }
  expect_weights(learner, name);
}

// Each rank keeps whole matrices, and all end with the same weights.
TEST_P(MuonGolden, TenStepsOnSeveralRanks) {
  const std::string name = GetParam();
  const Golden gold = Golden::open(name);
  const Json told = read_json(muon_folder() + "muon.json").at(name);
  const Batch batch = golden_batch(gold.prompt("train"));
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    ThreadRanks::run_all(ranks, [&](Comm& comm) {
      LearnerOptions options = muon_options(name, told);
      options.comm = &comm;
      options.threads = 1;
      Learner learner(open_model(gold.model()), options);
      const Batch part = part_of(batch, comm.rank(), ranks);
      for (const Json& loss : told.at("losses_before_each_step")) {
        const double got = learner.step(std::span(&part, 1), 1e-2).loss;
        if (comm.rank() != 0) continue;
        EXPECT_NEAR(got, loss.get<double>(), 1e-4 * loss.get<double>());
      }
      if (comm.rank() == 0) expect_weights(learner, name);
      size_t own = 0;
      for (const Parameter& p : learner.parameters().list()) own += learner.optimizer().state_of(1, p).empty() ? 1 : 0;
      EXPECT_GT(own, 4u);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Every, MuonGolden, testing::Values("llama", "gpt2_a", "qwen3"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Muon, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Golden gold = Golden::open("gemma2");
  const Batch batch = golden_batch(gold.prompt("train"));
  std::vector<float> first;
  for (const int threads : {1, 2, 5}) {
    LearnerOptions options;
    options.optimizer = {.kind = OptimizerOptions::Kind::muon, .momentum = 0.95};
    options.threads = threads;
    Learner learner(open_model(gold.model()), options);
    for (int i = 0; i < 3; ++i) learner.step(std::span(&batch, 1), 1e-2);
    const Parameters& parameters = learner.parameters();
    const std::vector<float> now(parameters.weights(), parameters.weights() + parameters.size());
    if (first.empty()) first = now;
    EXPECT_EQ(std::memcmp(now.data(), first.data(), now.size() * sizeof(float)), 0) << threads;
  }
}

TEST(Muon, ReportsWhatAStepChanged) {
  const Golden gold = Golden::open("llama");
  const Batch batch = golden_batch(gold.prompt("train"));
  LearnerOptions options;
  options.optimizer = {.kind = OptimizerOptions::Kind::muon, .momentum = 0.95, .weight_decay = 0.1};
  Learner learner(open_model(gold.model()), options);
  const Parameters& parameters = learner.parameters();
  const std::vector<float> before(parameters.weights(), parameters.weights() + parameters.size());
  const StepReport report = learner.step(std::span(&batch, 1), 1e-2, true);
  for (size_t i = 0; i < parameters.list().size(); ++i) {
    const Parameter& p = parameters.list()[i];
    double change = 0, weight = 0;
    for (size_t k = p.begin; k < p.begin + p.count; ++k) {
      const double now = parameters.weights()[k], moved = now - before[k];
      change += moved * moved;
      weight += now * now;
    }
    EXPECT_NEAR(report.update.change[i], std::sqrt(change), 1e-4 * std::sqrt(change)) << p.name;
    EXPECT_NEAR(report.update.weight[i], std::sqrt(weight), 1e-4 * std::sqrt(weight)) << p.name;
  }
}

// Against the iteration as it is written, in double, at sizes around those of blocks; also matrices that lack rank.
TEST(Orthogonal, IsTheNewtonSchulzIteration) {
  const auto product = [](const std::vector<double>& a, const std::vector<double>& b, size_t n, size_t depth, size_t m) {
    std::vector<double> c(n * m);
    for (size_t i = 0; i < n; ++i)
      for (size_t k = 0; k < depth; ++k)
        for (size_t j = 0; j < m; ++j) c[i * m + j] += a[i * depth + k] * b[k * m + j];
    return c;
  };
  for (const auto& [rows, columns] : std::vector<std::pair<size_t, size_t>>{{1, 1}, {3, 70}, {33, 20}, {40, 40}, {15, 600}}) {
    for (const bool low_rank : {false, true}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + (low_rank ? ", of rank 1" : ""));
      std::vector<float> u(rows * columns), got(u.size(), 0.5f);
      for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < columns; ++j)
          u[i * columns + j] =
              static_cast<float>(low_rank ? std::sin(1.0 + static_cast<double>(i)) * std::cos(static_cast<double>(j))
                                          : std::sin(1.0 + 12.9898 * static_cast<double>(i * columns + j)));
      const size_t n = std::min(rows, columns), longer = std::max(rows, columns);
      double norm = 0;
      for (const float x : u) norm += static_cast<double>(x) * static_cast<double>(x);
      norm = std::sqrt(norm);
      std::vector<double> x(u.size()), turned(u.size());  // [n, longer]
      for (size_t i = 0; i < n; ++i)
        for (size_t j = 0; j < longer; ++j)
          x[i * longer + j] = static_cast<double>(rows <= columns ? u[i * columns + j] : u[j * columns + i]) / norm;
      for (int step = 0; step < 5; ++step) {
        for (size_t i = 0; i < n; ++i)
          for (size_t j = 0; j < longer; ++j) turned[j * n + i] = x[i * longer + j];
        const std::vector<double> r = product(x, turned, n, longer, n), s = product(r, r, n, n, n);
        std::vector<double> p(n * n);
        for (size_t i = 0; i < n * n; ++i) p[i] = -4.7750 * r[i] + 2.0315 * s[i] + (i % (n + 1) == 0 ? 3.4445 : 0);
        x = product(p, x, n, n, longer);
      }
      Orthogonalizer(rows, columns).add(u.data(), rows, columns, 5, -2, got.data());
      for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < columns; ++j) {
          const double want = 0.5 - 2 * (rows <= columns ? x[i * longer + j] : x[j * longer + i]);
          ASSERT_NEAR(got[i * columns + j], want, 2e-4) << i << ", " << j;
        }
    }
  }
  std::vector<float> zeros(12), out(12, 1.0f);
  Orthogonalizer(3, 4).add(zeros.data(), 3, 4, 5, 1, out.data());
  EXPECT_EQ(out, std::vector<float>(12, 1.0f));
}

}  // namespace
}  // namespace vitrine
