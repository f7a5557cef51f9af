// Runs that end behind the last hook that is wanted, and that start in the middle.
#include "hooks/partial_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "hooks/trace.h"
#include "support/golden.h"

namespace vitrine {
namespace {

const std::vector<int32_t> kRunIds = {5, 3, 7, 9, 11, 2, 4};

// Hears how far a run comes, and puts NaN at one hook.
class Witness final : public Listener {
 public:
  explicit Witness(std::string poisoned = {}) : poisoned_(std::move(poisoned)) {}
  std::string last;
  // Scores and what a head writes alone make attention run step by step, with other rounding.
  bool wants(std::string_view name) const override { return !heads_first(name) && !name.ends_with("hook_result"); }
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
    last = name;
    if (name != poisoned_) return {};
    const Tensor nan = ctx.empty(value.shape());
    std::fill_n(nan.data<float>(), nan.count(), std::numeric_limits<float>::quiet_NaN());
    return nan;
  }

 private:
  std::string poisoned_;
};

PartialResult run_one(Engine& engine, const std::vector<int32_t>& ids, const PartialRun& request) {
  return run_partly(engine, {&ids, 1}, request);
}

TEST(PartialRun, EndsBehindTheLastHookThatIsWanted) {
  Engine engine(Golden::open("gemma2").model(), {2, {}});
  const std::vector<std::string> hooks = {"blocks.0.hook_mlp_out", "blocks.1.attn.hook_q"};
  Witness witness;
  const PartialResult kept = run_one(engine, kRunIds, {.hooks = hooks, .edits = &witness});
  EXPECT_EQ(witness.last, "blocks.1.attn.hook_q");
  const Recorder whole = trace_to_memory(engine, kRunIds, hooks);
  ASSERT_EQ(kept.order, whole.order());
  for (const std::string& name : kept.order)
    EXPECT_EQ(kept.values.find(name)->second.values, whole.values().find(name)->second.values) << name;

  run_one(engine, kRunIds, {.hooks = hooks, .edits = &witness, .edited = {"blocks.2.hook_resid_mid"}});
  EXPECT_EQ(witness.last, "blocks.2.hook_resid_mid");
  run_one(engine, kRunIds, {.hooks = {"hook_logits"}, .edits = &witness});
  EXPECT_EQ(witness.last, "hook_logits");
}

TEST(PartialRun, StartsInTheMiddleWithTheSameBits) {
  for (const char* family : {"gpt2_a", "gemma2", "olmo3", "lfm2", "gemma4_moe"}) {
    Engine engine(Golden::open(family).model(), {2, {}});
    const std::vector<std::string> hooks = {"blocks.*.hook_resid_post", "hook_logits"};
    const PartialResult whole = run_one(engine, kRunIds, {.hooks = hooks});
    const auto& entering = whole.values.find("blocks.0.hook_resid_post")->second.values;
    Witness witness;
    const PartialResult later = run_one(engine, kRunIds,
                                        {.hooks = {"blocks.1.hook_resid_post", "hook_logits"},
                                         .edits = &witness,
                                         .start_layer = 1,
                                         .stream = std::span(entering.data(), entering.size())});
    for (const std::string& name : later.order)
      EXPECT_EQ(later.values.find(name)->second.values, whole.values.find(name)->second.values) << family << " " << name;
    const PartialResult again = run_one(engine, kRunIds, {.hooks = hooks});  // nothing of the start is left
    EXPECT_EQ(again.values.find("hook_logits")->second.values, whole.values.find("hook_logits")->second.values);
  }
}

TEST(PartialRun, RefusesNanAndWhatLiesBeforeItsStart) {
  Engine engine(Golden::open("gpt2_a").model(), {2, {}});
  Witness witness("blocks.1.hook_mlp_out");
  const auto message = [&](const PartialRun& request) {
    try {
      run_one(engine, kRunIds, request);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_NE(message({.hooks = {"hook_logits"}, .edits = &witness}).find("appeared first in blocks.1.hook_mlp_out"),
            std::string::npos);
  EXPECT_NE(message({.hooks = {"blocks.1.hook_resid_post"}, .edits = &witness}).find("first in blocks.1.hook_mlp_out"),
            std::string::npos);
  EXPECT_EQ(message({.hooks = {"blocks.1.hook_resid_mid"}, .edits = &witness}), "nothing was thrown");
  EXPECT_EQ(message({.hooks = {"hook_logits"}, .edits = &witness, .refuse_nan = false}), "nothing was thrown");
  const std::vector<float> stream(kRunIds.size() * static_cast<size_t>(engine.shape().d_model));
  EXPECT_NE(message({.hooks = {"blocks.0.hook_resid_mid"}, .start_layer = 1, .stream = stream})
                .find("blocks.0.hook_resid_mid lies before layer 1, where this run starts"),
            std::string::npos);
  EXPECT_NE(message({.hooks = {"hook_logits"}, .start_layer = 99, .stream = stream}).find("cannot start at layer 99"),
            std::string::npos);
  EXPECT_NE(message({.hooks = {"hook_logits"}, .start_layer = 1, .stream = std::span(stream).first(3)}).find("has 3 numbers"),
            std::string::npos);
}

}  // namespace
}  // namespace vitrine
