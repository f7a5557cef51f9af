// Gradients of numbers made of logits; at every hook of every family against torch's autograd
// (tests/golden/hooks/make_gradients.py), in double, so that nothing but the formulas counts.
// python/tests/test_metric_gradients.py does the same in f32.
#include "hooks/metric_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <utility>

#include "inspect/support.h"
#include "ops/tape.h"
#include "support/golden.h"

namespace vitrine {
namespace {

Engine open_golden(const std::string& model) {
  return Engine(std::string(VITRINE_GOLDEN) + "/models/" + model + "/model", {2, {}});
}

class Function final : public LogitsMetric {
 public:
  using Of = std::function<double(std::span<const Tensor>, std::span<const Tensor>)>;
  explicit Function(Of of) : of_(std::move(of)) {}
  double evaluate(std::span<const Tensor> logits, std::span<const Tensor> derivative) override { return of_(logits, derivative); }

 private:
  Of of_;
};

float& cell(const Tensor& t, int64_t row, int64_t column) { return t.row<float>(row)[column]; }

const FloatVector& at(const HookGradients& found, size_t sequence, const std::string& hook) {
  return found.values.at(sequence).at(hook).values;
}

constexpr size_t kMetrics = 6;  // of make_gradients.py
const std::string kGradients = std::string(VITRINE_GOLDEN) + "/hooks/gradients/";

// The numbers of make_gradients.py that every program can make.
double wave(int64_t i, double seed = 0) {
  const auto x = static_cast<double>(i);
  return std::cos(1.3 * x + std::fmod(0.37 * x * x, 7) + seed);
}
double projection(int64_t i, int which) { return std::cos(0.7 + 1.9 * which + (1.1 + 0.37 * which) * static_cast<double>(i)); }

std::vector<double> log_softmax(std::vector<double> z) {
  const double top = *std::max_element(z.begin(), z.end());
  double sum = 0;
  for (const double x : z) sum += std::exp(x - top);
  for (double& x : z) x -= top + std::log(sum);
  return z;
}
std::vector<double> log_softmax(const Tensor& z, int64_t row) {
  return log_softmax(std::vector<double>(z.row<double>(row), z.row<double>(row) + z.row_size()));
}

double golden_metric(size_t which, std::span<const int32_t> ids, const Tensor& z, const Tensor& d) {
  const int64_t n = z.row_size(), last = z.rows() - 1;
  double value = 0;
  const auto add_logprob = [&](int64_t row, int32_t token, double factor) {
    const std::vector<double> log_p = log_softmax(z, row);
    for (int64_t i = 0; i < n; ++i) d.row<double>(row)[i] -= factor * std::exp(log_p[static_cast<size_t>(i)]);
    d.row<double>(row)[token] += factor;
    value += factor * log_p[static_cast<size_t>(token)];
  };
  if (which == 0)
    for (int64_t t = 0; t < last; ++t) add_logprob(t, ids[static_cast<size_t>(t) + 1], -1 / static_cast<double>(last));
  if (which == 1 || which == 5) {
    d.row<double>(last)[7] = 1;
    d.row<double>(last)[11] = -1;
    value = z.row<double>(last)[7] - z.row<double>(last)[11];
  }
  if (which == 2) add_logprob(4, 5, 1);
  for (int64_t t = 0; which == 3 && t <= last; ++t) {
    std::vector<double> p, q = log_softmax(z, t);
    for (int64_t i = 0; i < n; ++i) p.push_back(3 * wave(t * n + i));
    p = log_softmax(std::move(p));
    for (size_t i = 0; i < p.size(); ++i) {
      value += std::exp(p[i]) * (p[i] - q[i]) / static_cast<double>(last + 1);
      d.row<double>(t)[i] = (std::exp(q[i]) - std::exp(p[i])) / static_cast<double>(last + 1);
    }
  }
  for (int64_t t = 2; which == 4 && t < 5; ++t)
    for (int64_t i = 0; i < 7; ++i) {
      value += z.row<double>(t)[i] * z.row<double>(t)[i];
      d.row<double>(t)[i] = 2 * z.row<double>(t)[i];
    }
  return value;
}

// A small ReLU autoencoder in the place of the stream behind block 0: one that says on the tape how gradients flow back through
// it.
class Autoencoder final : public Listener {
 public:
  explicit Autoencoder(int64_t width) : width_(width) {}
  bool wants(std::string_view name) const override { return name == "blocks.0.hook_resid_post"; }
  Tensor see(Context& ctx, std::string_view, const Tensor& x) override {
    const Tensor y = ctx.empty(x.shape());
    for (int64_t t = 0; t < x.rows(); ++t) {
      const std::vector<double> acts = features(x.row<double>(t));
      for (int64_t j = 0; j < width_; ++j) {
        double sum = 0.05;
        for (int64_t f = 0; f < 2 * width_; ++f) sum += acts[static_cast<size_t>(f)] * decoder(f, j);
        y.row<double>(t)[j] = sum;
      }
    }
    ctx.tape()->record(&back, Node{this, x, y});
    return y;
  }

 private:
  struct Node {
    const Autoencoder* self;
    Tensor x, y;
  };
  double encoder(int64_t i, int64_t f) const { return wave(i * 2 * width_ + f) / std::sqrt(static_cast<double>(width_)); }
  double decoder(int64_t f, int64_t j) const { return wave(f * width_ + j, 1) / std::sqrt(static_cast<double>(2 * width_)); }
  std::vector<double> features(const double* x) const {
    std::vector<double> acts(static_cast<size_t>(2 * width_), 0.1);
    for (int64_t i = 0; i < width_; ++i)
      for (int64_t f = 0; f < 2 * width_; ++f) acts[static_cast<size_t>(f)] += x[i] * encoder(i, f);
    for (double& a : acts) a = std::max(a, 0.0);
    return acts;
  }
  static void back(Context&, Tape& tape, const Node& node) {
    const Tensor dy = tape.gradient(node.y), dx = tape.accumulate(node.x);
    const Autoencoder& self = *node.self;
    for (int64_t t = 0; dy && dx && t < dy.rows(); ++t) {
      const std::vector<double> acts = self.features(node.x.row<double>(t));
      for (int64_t f = 0; f < 2 * self.width_; ++f) {
        if (acts[static_cast<size_t>(f)] == 0) continue;
        double slope = 0;
        for (int64_t j = 0; j < self.width_; ++j) slope += dy.row<double>(t)[j] * self.decoder(f, j);
        for (int64_t i = 0; i < self.width_; ++i) dx.row<double>(t)[i] += slope * self.encoder(i, f);
      }
    }
  }
  int64_t width_;
};

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(kGradients)) names.push_back(file.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

class GradientsOf : public testing::TestWithParam<std::string> {};

TEST_P(GradientsOf, FiveMetricsAtEveryHookAreTorchs) {
  const Checkpoint file = open_safetensors(kGradients + GetParam() + ".safetensors");
  const GoldenTensor table = golden_tensor(file, "gradients"), values = golden_tensor(file, "values");
  const GoldenTensor stored =
      golden_tensor(open_safetensors(std::string(VITRINE_GOLDEN) + "/hooks/" + GetParam() + ".safetensors"), "ids");
  const std::vector<std::vector<int32_t>> ids = {{stored.begin(), stored.end()}};
  Engine engine = open_golden(GetParam());
  engine.context().activations = DType::f64;
  std::vector<std::string> names = engine.model().hook_names();
  std::sort(names.begin(), names.end());
  ASSERT_EQ(table.shape, (std::vector<int64_t>{static_cast<int64_t>(names.size()), kMetrics, 5}));
  Autoencoder autoencoder(engine.shape().d_model);
  Listener* const listener = &autoencoder;
  for (size_t m = 0; m < kMetrics; ++m) {
    SCOPED_TRACE("metric " + std::to_string(m));
    Function metric([&](std::span<const Tensor> z, std::span<const Tensor> d) { return golden_metric(m, ids[0], z[0], d[0]); });
    const HookGradients found = metric_gradients(engine, ids, metric, std::vector<std::string>{"*"},
                                                 m == 5 ? std::span(&listener, 1) : std::span<Listener* const>{});
    EXPECT_NEAR(found.loss, static_cast<double>(values.values[m]), 1e-6 * std::max(1.0, std::abs(found.loss)));
    for (size_t i = 0; i < names.size(); ++i) {
      const float* expected = table.values.data() + (i * kMetrics + m) * 5;  // length, three products, what rounding goes by
      double square = 0;
      std::array<double, 3> products{};
      const FloatVector& g = at(found, 0, names[i]);
      for (size_t j = 0; j < g.size(); ++j) {
        const auto x = static_cast<double>(g[j]);
        square += x * x;
        for (int which = 0; which < 3; ++which)
          products[static_cast<size_t>(which)] += x * projection(static_cast<int64_t>(j), which);
      }
      const double tolerance = 1e-5 * static_cast<double>(expected[4]) + 1e-12;
      EXPECT_NEAR(std::sqrt(square), static_cast<double>(expected[0]), tolerance) << names[i];
      for (size_t which = 0; which < 3; ++which)
        EXPECT_NEAR(products[which], static_cast<double>(expected[1 + which]), tolerance) << names[i] << ", product " << which;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GradientsOf, testing::ValuesIn(golden_models()), [](const auto& model) { return model.param; });

TEST(MetricGradients, OfTheLossAreThoseOfTheLoss) {
  Engine engine = open_golden("gemma2");
  const std::vector<std::vector<int32_t>> ids = {{5, 17, 3, 101}}, labels = {{-100, -100, -100, 9}};
  Function loss([](std::span<const Tensor> logits, std::span<const Tensor> d) {  // -log softmax(logits[2])[9]
    const float* z = logits[0].row<float>(2);
    const int64_t n = logits[0].row_size();
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(z[i]));
    for (int64_t i = 0; i < n; ++i) cell(d[0], 2, i) = static_cast<float>(std::exp(static_cast<double>(z[i])) / sum);
    cell(d[0], 2, 9) -= 1;
    return std::log(sum) - static_cast<double>(z[9]);
  });
  const std::vector<std::string> hooks = {"hook_embed", "pattern", "blocks.1.mlp.hook_post", "hook_logits"};
  const HookGradients found = metric_gradients(engine, ids, loss, hooks), expected = hook_gradients(engine, ids, labels, hooks);
  EXPECT_NEAR(found.loss, expected.loss, 1e-6);
  EXPECT_EQ(found.order, expected.order);
  for (const std::string& hook : expected.order)
    EXPECT_CLOSE(at(found, 0, hook), at(expected, 0, hook), (Tolerance{.abs = 1e-7, .rel = 1e-4}));
}

TEST(MetricGradients, SeeAllSequences) {
  Engine engine = open_golden("llama");
  const std::vector<std::vector<int32_t>> both = {{5, 17, 3}, {7, 8}};
  std::vector<float> seen;
  Function product([&](std::span<const Tensor> logits, std::span<const Tensor> d) {
    const float a = cell(logits[0], 2, 4), b = cell(logits[1], 1, 6);
    seen = {a, b};
    cell(d[0], 2, 4) = b;
    cell(d[1], 1, 6) = a;
    return static_cast<double>(a) * static_cast<double>(b);
  });
  const std::vector<std::string> hooks = {"blocks.1.hook_resid_pre[positions=-1]"};
  const HookGradients found = metric_gradients(engine, both, product, hooks);
  EXPECT_NEAR(found.loss, static_cast<double>(seen[0]) * static_cast<double>(seen[1]), 1e-6);
  for (size_t i = 0; i < 2; ++i) {
    Function alone([&](std::span<const Tensor>, std::span<const Tensor> d) {
      cell(d[0], i == 0 ? 2 : 1, i == 0 ? 4 : 6) = seen[1 - i];
      return 0.0;
    });
    const HookGradients expected = metric_gradients(engine, {&both[i], 1}, alone, hooks);
    EXPECT_EQ(at(found, i, "blocks.1.hook_resid_pre"), at(expected, 0, "blocks.1.hook_resid_pre"));
    EXPECT_EQ(found.values[i].at("blocks.1.hook_resid_pre").shape, (std::vector<int64_t>{1, engine.shape().d_model}));
  }
}

TEST(MetricGradients, EndWhereAListenerPutsAConstant) {
  class Zero final : public Listener {
   public:
    bool wants(std::string_view name) const override { return name == "blocks.1.hook_resid_pre"; }
    Tensor see(Context& ctx, std::string_view, const Tensor& value) override { return ctx.zeros(value.shape()); }
  } zero;
  Engine engine = open_golden("llama");
  const std::vector<std::vector<int32_t>> ids = {{5, 17, 3}};
  Listener* const listener = &zero;
  Function logit([](std::span<const Tensor> logits, std::span<const Tensor> d) {
    cell(d[0], 2, 4) = 1;
    return static_cast<double>(cell(logits[0], 2, 4));
  });
  const std::vector<std::string> hooks = {"blocks.0.hook_resid_post", "blocks.1.hook_resid_pre"};
  const HookGradients found = metric_gradients(engine, ids, logit, hooks, {&listener, 1});
  EXPECT_TRUE(std::ranges::all_of(at(found, 0, "blocks.0.hook_resid_post"), [](float x) { return x == 0; }));
  EXPECT_FALSE(std::ranges::all_of(at(found, 0, "blocks.1.hook_resid_pre"), [](float x) { return x == 0; }));
}

TEST(MetricGradients, RefuseWhatCannotBe) {
  Engine engine = open_golden("llama");
  const std::vector<std::vector<int32_t>> ids = {{5, 17, 3}};
  const std::vector<std::string> hooks = {"hook_embed"};
  Function broken([](std::span<const Tensor>, std::span<const Tensor> d) {
    cell(d[0], 1, 1) = std::numeric_limits<float>::quiet_NaN();
    return 0.0;
  });
  EXPECT_CONTAINS(message_of<RunError>([&] { metric_gradients(engine, ids, broken, hooks); }),
                  "the metric or its derivative is NaN or infinite");
  EXPECT_CONTAINS(message_of<InputError>([&] { metric_gradients(engine, ids, broken, hooks, {}, 100); }), "would take");
  EXPECT_CONTAINS(message_of<InputError>([&] { metric_gradients(engine, ids, broken, std::vector<std::string>{"hook_em"}); }),
                  "no hook of this llama model fits");
  EXPECT_THROW(metric_gradients(engine, {}, broken, hooks), InputError);
}

}  // namespace
}  // namespace vitrine
