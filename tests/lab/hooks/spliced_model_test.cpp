// Models with autoencoders at their hooks against SAELens's HookedSAETransformer (tests/golden/sae/make_hooked.py).
#include "hooks/spliced_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include "hooks/metric_gradients.h"
#include "hooks/partial_run.h"
#include "hooks/trace.h"
#include "inspect/support.h"
#include "sae/sae_file.h"
#include "support/golden.h"

namespace vitrine {
namespace {

const std::string kSaes = std::string(VITRINE_GOLDEN) + "/sae/";
const std::vector<std::vector<int32_t>> kPrompts = {{5, 17, 3, 101, 42, 8, 77}, {9, 4, 250, 31, 6, 60, 12}};
constexpr int64_t kAnswer = 7, kOther = 11;
constexpr Tolerance kNear{.abs = 2e-5, .rel = 1e-4};

struct Case {
  std::string name;
  Engine engine{std::string(VITRINE_GOLDEN) + "/models/gpt2_a/model", {2, {.f32 = true}}};
  std::shared_ptr<const SparseAutoencoder> sae;
  Checkpoint gold;
  std::shared_ptr<const SplicedModel> spliced;
  std::string place;  // where it writes

  explicit Case(std::string which) : name(std::move(which)), gold(open_safetensors(kSaes + "hooked/" + name + ".safetensors")) {
    const bool beside = name == "transcoder" || name == "heads";
    sae = std::make_shared<const SparseAutoencoder>(read_sae(kSaes + (beside ? "hooked/" : "runs/") + name));
    splice(true);
    place = spliced->places().front().writes;
  }
  void splice(bool keep_error) {
    spliced = std::make_shared<const SplicedModel>(*engine.opened().model, std::vector<SplicedSae>{{sae, keep_error}});
    engine.run_through(spliced);
  }
  // The logits of both prompts' last positions.
  std::vector<float> logits(Listener* edits, const std::string& edited) {
    const PartialResult ran =
        run_partly(engine, kPrompts, {.hooks = {"hook_logits[positions=-1]"}, .edits = edits, .edited = {edited}});
    const FloatVector& all = ran.values.at("hook_logits").values;
    return {all.begin(), all.end()};
  }
};

// A function of the value at a hook, in place.
class Change final : public Listener {
 public:
  Change(std::string hook, std::function<void(std::span<float>)> function)
      : hook_(std::move(hook)), function_(std::move(function)) {}
  bool wants(std::string_view name) const override { return name == hook_; }
  Tensor see(Context& ctx, std::string_view, const Tensor& value) override {
    const Tensor changed = ctx.empty(value.shape());
    std::copy_n(value.data<float>(), value.count(), changed.data<float>());
    function_({changed.data<float>(), static_cast<size_t>(value.count())});
    return changed;
  }

 private:
  std::string hook_;
  std::function<void(std::span<float>)> function_;
};

class LogitDifference final : public LogitsMetric {
 public:
  double evaluate(std::span<const Tensor> logits, std::span<const Tensor> derivative) override {
    double value = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const int64_t last = logits[i].rows() - 1;
      value += static_cast<double>(logits[i].row<float>(last)[kAnswer]) - static_cast<double>(logits[i].row<float>(last)[kOther]);
      derivative[i].row<float>(last)[kAnswer] = 1;
      derivative[i].row<float>(last)[kOther] = -1;
    }
    return value;
  }
};

class SplicedModels : public testing::TestWithParam<std::string> {};

TEST_P(SplicedModels, ValuesAreThoseOfSaeLens) {
  Case c(GetParam());
  const PartialResult ran = run_partly(c.engine, kPrompts, {.hooks = {c.place + ".hook_sae_*"}});
  ASSERT_EQ(ran.values.size(), kSaeHooks.size());
  for (const auto& [hook, value] : ran.values) {
    SCOPED_TRACE(hook);
    const GoldenTensor expected = golden_tensor(c.gold, "value." + hook);
    EXPECT_EQ(value.shape, expected.shape);
    EXPECT_CLOSE(value.values, expected.values, kNear);
  }
}

TEST_P(SplicedModels, ChangesFlowOnAsInSaeLens) {
  Case c(GetParam());
  const auto times = [](float factor) {
    return [factor](std::span<float> all) {
      for (float& x : all) x *= factor;
    };
  };
  const int64_t d_sae = c.sae->d_sae;
  const std::pair<const char*, std::function<void(std::span<float>)>> changes[] = {{"hook_sae_input", times(1.5F)},
                                                                                   {"hook_sae_acts_pre",
                                                                                    [](std::span<float> all) {
                                                                                      for (float& x : all) x += 0.5F;
                                                                                    }},
                                                                                   {"hook_sae_acts_post",
                                                                                    [&](std::span<float> all) {
                                                                                      for (size_t i = 3; i < all.size();
                                                                                           i += static_cast<size_t>(d_sae))
                                                                                        all[i] = 2;
                                                                                    }},
                                                                                   {"hook_sae_recons", times(0.5F)},
                                                                                   {"hook_sae_error", times(0)},
                                                                                   {"hook_sae_output", times(0.8F)}};
  for (const auto& [hook, function] : changes) {
    SCOPED_TRACE(hook);
    const std::string full = c.place + "." + hook;
    Change change(full, function);
    EXPECT_CLOSE(c.logits(&change, full), golden_tensor(c.gold, std::string("changed.") + hook).values, kNear);
  }
  c.splice(false);
  EXPECT_CLOSE(c.logits(nullptr, c.place), golden_tensor(c.gold, "without_error").values, kNear);
}

TEST_P(SplicedModels, GradientsAreThoseOfSaeLens) {
  Case c(GetParam());
  LogitDifference metric;
  const std::vector<std::string> hooks = {c.place + ".hook_sae_*", "blocks.0.hook_resid_pre"};
  const HookGradients found = metric_gradients(c.engine, kPrompts, metric, hooks);
  for (const std::string& hook : found.order) {
    if (hook.ends_with("hook_sae_error")) continue;  // in SAELens no gradient gets there
    SCOPED_TRACE(hook);
    const GoldenTensor expected = golden_tensor(c.gold, "gradient." + hook);
    for (size_t i = 0; i < kPrompts.size(); ++i) EXPECT_CLOSE(found.values[i].at(hook).values, expected.at(i).values, kNear);
  }
}

TEST_P(SplicedModels, WithoutChangesARunIsTheSame) {
  Case c(GetParam());
  const std::vector<float> through = c.logits(nullptr, c.place);
  EXPECT_CLOSE(through, golden_tensor(c.gold, "logits").values, kNear);
  c.engine.run_through(nullptr);
  const PartialResult plain = run_partly(c.engine, kPrompts, {.hooks = {"hook_logits[positions=-1]"}});
  EXPECT_CLOSE(through, plain.values.at("hook_logits").values, Tolerance{.abs = 0, .rel = 0});
}

INSTANTIATE_TEST_SUITE_P(SaeLens, SplicedModels, testing::Values("standard", "gated", "topk", "jumprelu", "transcoder", "heads"),
                         [](const auto& info) { return info.param; });

TEST(SplicedModel, FeaturesAreAmongTheHookNames) {
  Case c("transcoder");
  const std::vector<std::string> names = c.engine.model().hook_names(), plain = c.engine.opened().model->hook_names();
  ASSERT_EQ(names.size(), plain.size() + kSaeHooks.size());
  const auto at = std::ranges::find(names, "blocks.1.hook_mlp_out.hook_sae_input");
  ASSERT_NE(at, names.end());
  for (size_t i = 0; i < kSaeHooks.size(); ++i)
    EXPECT_EQ(at[static_cast<std::ptrdiff_t>(i)], "blocks.1.hook_mlp_out." + std::string(kSaeHooks[i]));
  EXPECT_EQ(at[kSaeHooks.size()], "blocks.1.hook_mlp_out");
  EXPECT_EQ(hook_shape(c.engine.model(), "blocks.1.hook_mlp_out.hook_sae_acts_post", 5), (std::vector<int64_t>{5, 20}));
}

TEST(SplicedModel, ASequenceOfAStepOfSeveral) {
  Case c("standard");
  const std::string hook = c.place + ".hook_sae_acts_post";
  Recorder seen({{hook, {}, {}}});
  Step step;
  for (const auto& ids : kPrompts) step.add(ids, nullptr);
  Context& ctx = c.engine.context();
  const auto frame = ctx.frame();
  ctx.listen(&seen, 1);
  c.engine.model().residual(ctx, step);
  ctx.listen(nullptr);
  EXPECT_CLOSE(seen.values().at(hook).values, golden_tensor(c.gold, "value." + hook).at(1).values, kNear);
}

TEST(SplicedModel, RefusesWhatDoesNotFit) {
  Case c("standard");
  const Model& base = *c.engine.opened().model;
  const auto says = [&](const std::vector<SplicedSae>& saes, const std::string& text) {
    try {
      const SplicedModel made(base, saes);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  };
  const auto changed = [&](auto&& change) {
    auto sae = std::make_shared<SparseAutoencoder>(*c.sae);
    change(*sae);
    return std::vector<SplicedSae>{{sae, true}};
  };
  says({{c.sae, true}, {c.sae, true}}, "two autoencoders stand at blocks.1.hook_resid_pre");
  says(changed([](auto& s) { s.hook_name = s.hook_name_out = "blocks.9.hook_resid_pre"; }), "fits \"blocks.9.hook_resid_pre\"");
  says(changed([](auto& s) { s.hook_name = s.hook_name_out = "resid_pre"; }), "fits 3 hooks");
  says(changed([](auto& s) { s.hook_name = s.hook_name_out = "post.1"; }), "d_in is 48");
  says(changed([](auto& s) { s.hook_name = s.hook_name_out = "pattern.1"; }), "no row for each token");
  says(changed([](auto& s) { s.hook_name = s.hook_name_out = ""; }), "do not say at which hook");
  says(changed([](auto& s) { s.hook_name_out = "blocks.0.hook_mlp_out"; }), "which the run reaches after");
}

}  // namespace
}  // namespace vitrine
