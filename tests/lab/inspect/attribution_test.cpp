// Attributions and gradients at hooks against torch's autograd in float64 (tests/golden/attribution/make.py).
#include "inspect/attribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hooks/objective.h"
#include "hooks/trace.h"
#include "support.h"

namespace vitrine {
namespace {

const std::string kGolden = std::string(VITRINE_GOLDEN) + "/attribution/";

Json golden_attribution(const std::string& model) { return read_json(kGolden + "attribution.json").at(model); }
Engine open(const std::string& model, int threads = 2) {
  return Engine(std::string(VITRINE_GOLDEN) + "/models/" + model + "/model", {threads, {}});
}

void expect_near(const std::vector<double>& found, const Json& expected, double tolerance, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 0;
  for (const Json& x : expected) largest = std::max(largest, std::abs(x.get<double>()));
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i].get<double>(), tolerance * largest) << what << " " << i;
}

class AttributionOf : public testing::TestWithParam<std::string> {};

TEST_P(AttributionOf, AgreesWithAutograd) {
  const Json gold = golden_attribution(GetParam());
  Engine engine = open(GetParam());
  const auto ids = gold["ids"].get<std::vector<int32_t>>();
  const AttributionOptions options{
      .token = gold["token"].get<int32_t>(), .against = gold["against"].get<int32_t>(), .steps = 512};
  const Attribution found = attribute(engine, ids, options);
  EXPECT_NEAR(found.value, gold["value"].get<double>(), 2e-5);
  EXPECT_NEAR(*found.baseline_value, gold["mean_value"].get<double>(), 2e-5);
  expect_near(found.saliency, gold["saliency"], 1e-4, "saliency");
  expect_near(found.gradient_input, gold["gradient_input"], 1e-4, "gradient x input");
  expect_near(*found.integrated, gold["mean"], 1e-3, "integrated");
  EXPECT_LT(std::abs(*found.gap), 1e-3 * std::abs(found.value - *found.baseline_value));
  EXPECT_NEAR(std::accumulate(found.integrated->begin(), found.integrated->end(), 0.0),
              found.value - *found.baseline_value + *found.gap, 1e-12);
}

TEST_P(AttributionOf, HookGradientsAgreeWithAutograd) {
  const Json gold = golden_attribution(GetParam());
  const Checkpoint expected = open_safetensors(kGolden + "gradients.safetensors");
  Engine engine = open(GetParam());
  const std::vector<std::vector<int32_t>> ids = {gold["ids"].get<std::vector<int32_t>>()};
  const std::vector<std::string> hooks = {"blocks.*.hook_resid_pre", "pattern", "hook_logits"};
  const HookGradients found = hook_gradients(engine, ids, ids, hooks);
  const auto check = [&](const std::string& hook, const std::string& name) {
    SCOPED_TRACE(hook);
    const GoldenTensor want = golden_tensor(expected, GetParam() + "/" + name);
    const Recorder::Value& got = found.values.at(0).at(hook);
    EXPECT_EQ(got.shape, want.shape);
    float largest = 0;
    for (const float x : want) largest = std::max(largest, std::abs(x));
    EXPECT_CLOSE(got.values, want, (Tolerance{.abs = 1e-4 * static_cast<double>(largest), .rel = 0}));
  };
  for (int64_t layer = 0; layer < engine.shape().n_layers; ++layer) {
    const std::string n = std::to_string(layer);
    check("blocks." + n + ".hook_resid_pre", "hidden." + n);
    check("blocks." + n + ".attn.hook_pattern", "attn." + n);
  }
  check("hook_logits", "logits");

  // Without the table of logits the same gradients come from the fused loss.
  const HookGradients fused = hook_gradients(engine, ids, ids, std::vector<std::string>{"blocks.0.hook_resid_pre"});
  EXPECT_NEAR(fused.loss, found.loss, 1e-5);
  EXPECT_CLOSE(fused.values.at(0).at("blocks.0.hook_resid_pre").values, found.values.at(0).at("blocks.0.hook_resid_pre").values,
               (Tolerance{.abs = 1e-6, .rel = 1e-4}));
}

INSTANTIATE_TEST_SUITE_P(Families, AttributionOf, testing::Values("gpt2_a", "gemma", "gemma2", "llama", "mistral", "qwen2"),
                         [](const auto& family) { return family.param; });

TEST(Attribution, FromZeroAgreesWithAutogradWhereNormsAreLayerNorms) {
  const Json gold = golden_attribution("gpt2_a");
  Engine engine = open("gpt2_a");
  AttributionOptions options{
      .token = gold["token"].get<int32_t>(), .against = gold["against"].get<int32_t>(), .baseline = Baseline::zero};
  const Attribution found = attribute(engine, gold["ids"].get<std::vector<int32_t>>(), options);
  EXPECT_NEAR(*found.baseline_value, gold["zero_value"].get<double>(), 2e-5);
  expect_near(*found.integrated, gold["zero"], 1e-3, "integrated");
}

TEST(Attribution, IsTheSameForAnyNumberOfThreadsAndLeavesTheEngineAsItWas) {
  Engine one = open("gemma2", 1), two = open("gemma2", 2);
  const std::vector<int32_t> ids = {5, 17, 3, 101, 42};
  const auto before = one.predict(ids, 3, false);
  const Attribution a = attribute(one, ids, {.steps = 4}), b = attribute(two, ids, {.steps = 4});
  EXPECT_EQ(a.token, before[0].top[0].token);
  EXPECT_NEAR(a.value, before[0].top[0].logprob, 1e-5);
  EXPECT_EQ(a.saliency, b.saliency);
  EXPECT_EQ(a.integrated, b.integrated);
  EXPECT_EQ(one.predict(ids, 3, false)[0].top[0].logprob, before[0].top[0].logprob);
  const Attribution plain = attribute(one, ids, {.steps = 0});
  EXPECT_FALSE(plain.integrated);
  EXPECT_EQ(plain.saliency, a.saliency);
}

TEST(Attribution, RefusesWhatCannotBe) {
  Engine engine = open("llama");
  const std::vector<int32_t> ids = {5, 17};
  const auto message = [&](const AttributionOptions& options) {
    return message_of<InputError>([&] { attribute(engine, ids, options); });
  };
  EXPECT_CONTAINS(message({.token = 1'000'000}), "token 1000000 is outside the vocabulary (0 to ");
  EXPECT_CONTAINS(message({.against = -1}), "token -1 is outside the vocabulary");
  EXPECT_CONTAINS(message({.steps = 5000}), "steps is 5000; expected 0 (no integrated gradients) to 4096");
  EXPECT_CONTAINS(message({.token = 7, .against = 7}), "token 7 is explained against itself");
  const int32_t most_likely = attribute(engine, ids, {.steps = 0}).token;
  EXPECT_CONTAINS(message({.against = most_likely}), ", the most likely, is explained against itself");
  EXPECT_THROW(attribute(engine, std::vector<int32_t>{}), InputError);
}

TEST(Attribution, QuadratureIsExactForPolynomials) {
  for (const int64_t n : {1, 2, 5, 32, 101}) {
    const Quadrature q = gauss_legendre(n);
    ASSERT_EQ(q.points.size(), static_cast<size_t>(n));
    for (int64_t power = 0; power < std::min<int64_t>(2 * n, 40); ++power) {
      double sum = 0;
      for (size_t i = 0; i < q.points.size(); ++i) sum += q.weights[i] * std::pow(q.points[i], static_cast<double>(power));
      EXPECT_NEAR(sum, 1 / static_cast<double>(power + 1), 1e-14) << n << " points, power " << power;
    }
  }
}

// Several sequences: the loss is one mean over all labels, so each sequence's gradients have its share.
TEST(HookGradients, OfSeveralSequencesAreThoseOfTheWholeMean) {
  Engine engine = open("llama");
  const std::vector<std::vector<int32_t>> both = {{5, 17, 3, 101, 42}, {7, 8, 9}}, labels = {{5, 17, 3, 101, 42}, {7, 8, -100}};
  const std::vector<std::string> hooks = {"blocks.1.hook_resid_pre[positions=1:3]"};
  const HookGradients found = hook_gradients(engine, both, labels, hooks);
  EXPECT_EQ(found.scored, 5);
  double loss = 0;
  for (size_t i = 0; i < 2; ++i) {
    const HookGradients alone = hook_gradients(engine, {&both[i], 1}, {&labels[i], 1}, hooks);
    const auto share = static_cast<double>(alone.scored) / 5;
    loss += alone.loss * share;
    FloatVector expected = alone.values[0].at("blocks.1.hook_resid_pre").values;
    for (float& x : expected) x = static_cast<float>(x * share);
    const Recorder::Value& got = found.values[i].at("blocks.1.hook_resid_pre");
    EXPECT_EQ(got.shape, (std::vector<int64_t>{2, engine.shape().d_model}));
    EXPECT_CLOSE(got.values, expected, (Tolerance{.abs = 1e-9, .rel = 1e-6}));
  }
  EXPECT_NEAR(found.loss, loss, 1e-6);
  EXPECT_NEAR(found.loss, loss_gradients(engine, both, labels).loss, 1e-5);
}

TEST(HookGradients, AreZeroWhereNothingScoredDependsOnAValue) {
  Engine engine = open("llama");
  const std::vector<std::vector<int32_t>> ids = {{5, 17, 3, 101}, {7, 8}}, labels = {{-100, -100, 3, -100}, {-100, -100}};
  const HookGradients found = hook_gradients(engine, ids, labels, std::vector<std::string>{"hook_embed"});
  const Recorder::Value &first = found.values[0].at("hook_embed"), &second = found.values[1].at("hook_embed");
  const auto d = static_cast<size_t>(engine.shape().d_model);
  ASSERT_EQ(first.values.size(), 4 * d);
  EXPECT_NE(first.values[0], 0);
  for (size_t i = 2 * d; i < 4 * d; ++i) EXPECT_EQ(first.values[i], 0) << "label 2 is scored against position 1";
  EXPECT_EQ(second.values, FloatVector(2 * d, 0.0f));
  EXPECT_CONTAINS(message_of<InputError>(
                      [&] { hook_gradients(engine, {&ids[1], 1}, {&labels[1], 1}, std::vector<std::string>{"hook_embed"}); }),
                  "no position is scored");
}

TEST(HookGradients, AreWrittenByTrace) {
  Engine engine = open("gemma2");
  const Scratch scratch;
  const std::vector<std::vector<int32_t>> ids = {{5, 17, 3}, {7, 8, 9}};
  const Trace made = trace(engine, ids, {.hooks = {"hook_embed"}, .gradients_at = {"hook_embed", "pattern.0"}}, scratch / "t");
  const Checkpoint file = open_safetensors(scratch / "t");
  ASSERT_EQ(made.tensors.size(), 6u);
  EXPECT_EQ(made.scored, 4);
  const HookGradients expected = hook_gradients(engine, ids, ids, std::vector<std::string>{"hook_embed", "pattern.0"});
  EXPECT_EQ(made.loss.value(), expected.loss);
  for (size_t i = 0; i < 2; ++i)
    for (const auto& [hook, value] : expected.values[i]) {
      const GoldenTensor got = golden_tensor(file, "grad." + hook + "#" + std::to_string(i));
      EXPECT_EQ(got.shape, value.shape);
      EXPECT_TRUE(std::ranges::equal(got.values, value.values));
    }
}

}  // namespace
}  // namespace vitrine
