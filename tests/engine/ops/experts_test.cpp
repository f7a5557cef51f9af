// Mixture of experts: gradients against central differences, the stepwise form, the independence of rows and threads, replaced
// choices, and the load-balancing loss by tests/golden/experts/make.py.
#include "ops/experts.h"

#include <cmath>

#include "base/error.h"
#include "gradients.h"
#include "io/safetensors.h"
#include "ops/low_rank.h"
#include "ops/recorder.h"
#include "ops/router.h"
#include "ops/step.h"

namespace vitrine {
namespace {

constexpr int64_t kExperts = 5, kPerRow = 2, kWidth = 6, kHidden = 4;

ExpertSpec spec_of(bool over_all, bool renormalize, double limit = 0) {
  return {.count = kExperts,
          .per_row = kPerRow,
          .d_ff = kHidden,
          .softmax_over_all = over_all,
          .renormalize = renormalize,
          .limit = limit};
}

struct Layer {
  Weight router;
  std::vector<Expert> experts;
};

// Parameters of a gradient check; pairs: gate and up by turns in one matrix.
Layer layer_of(GradientCheck& check, bool biases, bool pairs) {
  Layer layer{check.weight(kExperts, kWidth, false, biases), {}};
  for (int64_t e = 0; e < kExperts; ++e) {
    Expert& expert = layer.experts.emplace_back();
    if (!pairs) expert.gate = check.weight(kHidden, kWidth, false, biases);
    expert.in = check.weight(pairs ? 2 * kHidden : kHidden, kWidth, pairs, biases);
    expert.out = check.weight(kWidth, kHidden, pairs, biases);
  }
  return layer;
}

TEST(Experts, GradientsMatchDifferences) {
  Recorder everything({{"*"}});
  const Step step = Step::of(std::vector<int32_t>(7, 0));
  ExpertSpec sigmoids = spec_of(true, true), groups = spec_of(true, false), inputs = spec_of(true, false);
  inputs.sigmoid = inputs.weighs_inputs = true;
  sigmoids.sigmoid = true;
  sigmoids.sum_eps = 0.1;
  sigmoids.scale = 1.7;
  ExpertSpec least = spec_of(true, true), mixer = spec_of(true, true);
  least.least_sum = 0.55;  // which some rows reach
  mixer.near = 0.9;
  groups.groups = 5;
  groups.groups_used = 3;
  groups.scale = 0.6;
  for (const ExpertSpec& spec : {spec_of(true, true), spec_of(true, false), spec_of(false, true), spec_of(false, true, 1.2),
                                 sigmoids, groups, least, mixer, inputs})
    for (Listener* listener : {static_cast<Listener*>(nullptr), static_cast<Listener*>(&everything)}) {
      GradientCheck check;
      check.input({7, kWidth});
      const Layer layer = layer_of(check, spec.limit > 0, spec.limit > 0);
      check.expect_match(
          [&](Context& ctx, const GradientCheck::Inputs& x) {
            ctx.enter(step);
            return expert_mlp(ctx, "mlp", x[0], layer.router, layer.experts, spec);
          },
          listener, 12);
    }
}

TEST(Experts, GradientsOfAdaptersMatchDifferences) {
  for (const double drop : {0.0, 0.4}) {
    GradientCheck check;
    check.input({7, kWidth});
    Layer layer = layer_of(check, false, false);
    std::vector<LowRank> adapters;
    adapters.reserve(3 * kExperts);
    for (Expert& expert : layer.experts)
      for (Weight* w : {&expert.gate, &expert.in, &expert.out}) {
        adapters.push_back({check.weight(2, w->in), check.weight(w->out, 2), 0.7, drop, adapters.size()});
        w->adapter = &adapters.back();
      }
    check.expect_match(
        [&](Context& ctx, const GradientCheck::Inputs& x) {
          return expert_mlp(ctx, "mlp", x[0], layer.router, layer.experts, spec_of(true, true));
        },
        nullptr, 8);
  }
}

// f32 weights of a layer, used where they lie.
class Floats {
 public:
  Weight weight(int64_t out, int64_t in) {
    const std::vector<double> values = noise(out * in, ++seed_, 0.7);
    const std::vector<float>& kept = *kept_.emplace_back(std::make_unique<std::vector<float>>(values.begin(), values.end()));
    Weight w;
    w.name = "weight";
    w.out = out;
    w.in = in;
    w.stride = sizeof(float) * static_cast<size_t>(in);
    w.data = reinterpret_cast<const std::byte*>(kept.data());
    return w;
  }
  Layer layer(int64_t width, int64_t hidden) {
    Layer layer{weight(kExperts, width), {}};
    for (int64_t e = 0; e < kExperts; ++e)
      layer.experts.push_back({weight(hidden, width), weight(hidden, width), weight(width, hidden)});
    return layer;
  }

 private:
  uint64_t seed_ = 0;
  std::vector<std::unique_ptr<std::vector<float>>> kept_;
};

constexpr int64_t kWide = 40, kWideHidden = 24;

std::vector<float> run(const Layer& layer, const std::vector<double>& x, int threads, Listener* listener = nullptr) {
  ThreadPool pool(threads);
  Context ctx(pool);
  const auto rows = static_cast<int64_t>(x.size()) / kWide;
  const Step step = Step::of(std::vector<int32_t>(static_cast<size_t>(rows), 0));
  ctx.listen(listener);
  ctx.enter(step);
  const Tensor in = ctx.empty({rows, kWide});
  std::copy(x.begin(), x.end(), in.data<float>());
  ExpertSpec spec = spec_of(true, true);
  spec.d_ff = kWideHidden;
  const Tensor y = expert_mlp(ctx, "mlp", in, layer.router, layer.experts, spec);
  return {y.data<float>(), y.data<float>() + y.count()};
}

TEST(Experts, ThreadsAndListenersChangeNoBit) {
  Floats floats;
  const Layer layer = floats.layer(kWide, kWideHidden);
  for (const int64_t rows : {1, 8, 9, 100}) {
    const std::vector<double> x = noise(rows * kWide, 77);
    const std::vector<float> one = run(layer, x, 1);
    EXPECT_EQ(run(layer, x, 3), one) << rows;
    Recorder everything({{"*"}});
    EXPECT_EQ(run(layer, x, 2, &everything), one) << rows;
  }
}

TEST(Experts, ARowsResultDoesNotDependOnOtherRows) {
  Floats floats;
  const Layer layer = floats.layer(kWide, kWideHidden);
  const std::vector<double> x = noise(100 * kWide, 78);
  const std::vector<float> all = run(layer, x, 2);
  for (const int64_t rows : {9, 20, 70}) {  // of the class of many rows; an expert gets few of them
    const std::vector<float> some = run(layer, {x.begin(), x.begin() + rows * kWide}, 2);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << rows;
  }
  const std::vector<float> eight = run(layer, {x.begin(), x.begin() + 8 * kWide}, 2),
                           one = run(layer, {x.begin(), x.begin() + kWide}, 2);
  EXPECT_TRUE(std::equal(one.begin(), one.end(), eight.begin()));
}

TEST(Experts, EqualLogitsChooseTheLowerNumber) {
  ThreadPool pool(1);
  Context ctx(pool);
  const Tensor logits = ctx.zeros({1, 4});
  logits.data<float>()[3] = -1;
  int32_t chosen[3];
  choose_experts(ctx, logits, {.count = 4, .per_row = 3}, chosen);
  EXPECT_EQ(std::vector<int32_t>(chosen, chosen + 3), (std::vector<int32_t>{0, 1, 2}));
  logits.data<float>()[1] = NAN;
  choose_experts(ctx, logits, {.count = 4, .per_row = 3}, chosen);
  EXPECT_EQ(std::vector<int32_t>(chosen, chosen + 3), (std::vector<int32_t>{0, 2, 3}));
}

std::vector<int32_t> chosen_of(const std::vector<float>& row, const ExpertSpec& spec) {
  ThreadPool pool(1);
  Context ctx(pool);
  const Tensor logits = ctx.zeros({1, static_cast<int64_t>(row.size())});
  std::copy(row.begin(), row.end(), logits.data<float>());
  std::vector<int32_t> chosen(static_cast<size_t>(spec.per_row));
  choose_experts(ctx, logits, spec, chosen.data());
  return chosen;
}

TEST(Experts, GroupsAreChosenByTheirBest) {
  const std::vector<float> logits = {3, -3, 1, 1, 2, 0};
  ExpertSpec spec{.count = 6, .per_row = 2, .groups = 3, .groups_used = 1};
  EXPECT_EQ(chosen_of(logits, spec), (std::vector<int32_t>{0, 1}));  // by its best one
  spec.sigmoid = true;
  spec.group_best = 2;
  EXPECT_EQ(chosen_of(logits, spec), (std::vector<int32_t>{2, 3}));  // 0.95 + 0.05, 0.73 + 0.73, 0.88 + 0.5
  spec.groups_used = 2;
  EXPECT_EQ(chosen_of(logits, spec), (std::vector<int32_t>{4, 2}));
  spec.groups = spec.groups_used = 1;
  EXPECT_EQ(chosen_of(logits, spec), (std::vector<int32_t>{0, 4}));
}

TEST(Experts, CorrectionsChooseAndDoNotWeigh) {
  const float corrections[] = {0, 0, 0.5f, 0};
  Vector correction;
  correction.size = 4;
  correction.data = corrections;
  const std::vector<float> logits = {2, 1, 0.5f, -1};
  ExpertSpec spec{.count = 4, .per_row = 2, .renormalize = false, .sigmoid = true, .correction = &correction};
  const std::vector<int32_t> chosen = chosen_of(logits, spec);
  EXPECT_EQ(chosen, (std::vector<int32_t>{2, 0}));
  ThreadPool pool(1);
  Context ctx(pool);
  const Tensor row = ctx.zeros({1, 4});
  std::copy(logits.begin(), logits.end(), row.data<float>());
  const Tensor weights = expert_weights(ctx, row, chosen.data(), spec);
  EXPECT_NEAR(weights.data<float>()[0], 1 / (1 + std::exp(-0.5)), 1e-6);
  EXPECT_NEAR(weights.data<float>()[1], 1 / (1 + std::exp(-2.0)), 1e-6);
}

// Puts other experts in the place of the chosen ones.
class Chooser : public Listener {
 public:
  explicit Chooser(float expert) : expert_(expert) {}
  bool wants(std::string_view name) const override { return name == "mlp.hook_expert_indices" || name == "mlp.hook_expert_out"; }
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
    if (name == "mlp.hook_expert_out") {
      out.assign(value.data<float>(), value.data<float>() + value.count());
      return {};
    }
    const Tensor other = ctx.empty(value.shape());
    std::fill_n(other.data<float>(), other.count(), expert_);
    return other;
  }
  std::vector<float> out;

 private:
  float expert_;
};

TEST(Experts, ReplacedIndicesChooseTheExperts) {
  Floats floats;
  const Layer layer = floats.layer(kWide, kWideHidden);
  const std::vector<double> x = noise(3 * kWide, 79);
  Chooser third(3);
  run(layer, x, 2, &third);
  Layer same = layer;
  for (Expert& expert : same.experts) expert = layer.experts[3];
  Recorder seen({{"mlp.hook_expert_out"}});
  run(same, x, 2, &seen);
  const FloatVector& expected = seen.values().at("mlp.hook_expert_out").values;
  EXPECT_EQ(third.out, std::vector<float>(expected.begin(), expected.end()));

  for (const float wrong : {-1.0f, 5.0f, 1.5f, NAN}) {
    Chooser chooser(wrong);
    try {
      run(layer, x, 1, &chooser);
      ADD_FAILURE() << "took " << wrong;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("expected the number of an expert, 0 to 4"), std::string::npos) << error.what();
    }
  }
}

TEST(Experts, BalanceLossAndItsGradientAreTransformers) {
  const Checkpoint golden = open_safetensors(std::string(VITRINE_GOLDEN) + "/experts/balance.safetensors");
  const auto floats = [&](const std::string& name) { return reinterpret_cast<const float*>(golden.find(name)->data); };
  ThreadPool pool(1);
  Context ctx(pool);
  Tape tape;
  ctx.record_on(&tape);
  RouterBalance balance;
  balance.weight = 0.25;
  ctx.step_of_training.balance = &balance;
  std::vector<Tensor> logits;
  Tensor sum;
  for (int layer = 0; layer < 3; ++layer) {
    logits.push_back(ctx.empty({7, 5}));
    std::copy_n(floats("logits." + std::to_string(layer)), 35, logits.back().data<float>());
    auto* const chosen = static_cast<int32_t*>(tape.arena().allocate(14 * sizeof(int32_t)));
    choose_experts(ctx, logits.back(), spec_of(true, true), chosen);
    const Tensor weights = expert_weights(ctx, logits.back(), chosen, spec_of(true, true));
    sum = sum ? add(ctx, sum, weights) : weights;
  }
  EXPECT_NEAR(balance.loss(), floats("loss")[0], 1e-6);
  balance.complete = true;
  Weight zeros;
  const std::vector<float> none(14, 0.0f);
  zeros.name = "zeros";
  zeros.out = 1;
  zeros.in = 14;
  zeros.stride = 14 * sizeof(float);
  zeros.data = reinterpret_cast<const std::byte*>(none.data());
  tape.backward(ctx, linear(ctx, sum.view({1, 14}), zeros).view({1}));
  for (int layer = 0; layer < 3; ++layer) {
    const Tensor dx = tape.gradient(logits[static_cast<size_t>(layer)]);
    for (int64_t i = 0; i < 35; ++i)
      EXPECT_NEAR(dx.data<float>()[i], 0.25 * static_cast<double>(floats("grad." + std::to_string(layer))[i]), 1e-7);
  }
}

}  // namespace
}  // namespace vitrine
