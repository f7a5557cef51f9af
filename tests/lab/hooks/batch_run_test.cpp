// Sequences of different length that run together: nothing of one reaches another, and what is kept lies where it belongs.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "hooks/hooks.h"
#include "hooks/partial_run.h"
#include "hooks/patched_runs.h"
#include "support/golden.h"

namespace vitrine {
namespace {

const std::vector<std::vector<int32_t>> kRows = {{5, 3, 7, 9, 11, 2, 4}, {8, 1}, {6, 6, 2, 10}};

// Doubles one hook, in place of all sequences.
class Louder final : public Listener {
 public:
  explicit Louder(std::string hook) : hook_(std::move(hook)) {}
  int calls = 0;
  bool wants(std::string_view name) const override { return name == hook_; }
  Tensor see(Context& ctx, std::string_view, const Tensor& value) override {
    ++calls;
    const Tensor louder = ctx.empty(value.shape());
    for (int64_t i = 0; i < value.count(); ++i) louder.data<float>()[i] = 2 * value.data<float>()[i];
    return louder;
  }

 private:
  std::string hook_;
};

// The number of row r at [position, …] of `all`, or of a pattern's [head, query, …], equals that of the row by itself.
void expect_row(const Recorder::Value& all, size_t r, const Recorder::Value& alone, bool pattern, const std::string& what) {
  const size_t lead = pattern ? 2 : 1;  // [batch, head, query, key] against [1, head, query, key]
  ASSERT_EQ(all.shape.size(), alone.shape.size()) << what;
  const auto at = [](const std::vector<int64_t>& shape, size_t i) { return static_cast<size_t>(shape[i]); };
  const size_t heads = pattern ? at(alone.shape, 1) : 1, rows = at(alone.shape, lead), more = at(all.shape, lead);
  const size_t width = alone.values.size() / (heads * rows), wide = all.values.size() / (at(all.shape, 0) * heads * more);
  for (size_t h = 0; h < heads; ++h)
    for (size_t i = 0; i < more; ++i) {
      const float* const line = all.values.data() + ((r * heads + h) * more + i) * wide;
      for (size_t j = 0; j < wide; ++j) {
        if (i >= rows) {
          EXPECT_TRUE(std::isnan(line[j])) << what << " behind the end of row " << r;
        } else if (j >= width) {
          EXPECT_TRUE(what.ends_with("scores") ? line[j] == -INFINITY : line[j] == 0)
              << what << " keys behind the end of row " << r;
        } else {
          EXPECT_EQ(line[j], alone.values[(h * rows + i) * width + j]) << what << " row " << r;
        }
      }
    }
}

TEST(BatchRun, EachRowIsAsByItself) {
  for (const char* family : {"gpt2_a", "gemma2", "olmo3", "lfm2", "qwen3_moe", "gemma4_moe"}) {
    Engine engine(Golden::open(family).model(), {2, {.f32 = true, .exact = true}});
    for (const bool edited : {false, true}) {
      Louder louder("blocks.1.hook_mlp_out"), quiet("blocks.1.hook_mlp_out");
      PartialRun request{.hooks = {"blocks.*.hook_resid_post", "blocks.0.*hook_scale", "blocks.*.attn.hook_pattern[heads=1:]",
                                   "blocks.*.attn.hook_attn_scores", "blocks.*.attn.hook_q[heads=1,positions=1:]",
                                   "hook_embed[positions=-1]", "hook_logits"},
                         .losses = true};
      if (std::string(family) == "lfm2")
        request.hooks = {"blocks.*.hook_resid_post", "hook_logits", "blocks.0.hook_resid_mid[positions=:2]"};
      if (edited) {
        request.edits = &louder;
        request.edited = {"blocks.1.hook_mlp_out"};
      }
      const PartialResult all = run_partly(engine, kRows, request);
      EXPECT_EQ(louder.calls, edited ? 1 : 0);
      if (edited) request.edits = &quiet;
      auto loss = all.losses.begin();
      for (size_t r = 0; r < kRows.size(); ++r) {
        const PartialResult alone = run_partly(engine, std::span(kRows).subspan(r, 1), request);
        ASSERT_EQ(alone.order, all.order) << family;
        for (const std::string& name : all.order)
          expect_row(all.values.at(name), r, alone.values.at(name), heads_first(name), family + std::string(" ") + name);
        for (const float expected : alone.losses) EXPECT_EQ(*loss++, expected) << family;
      }
      EXPECT_EQ(loss, all.losses.end());
    }
  }
}

TEST(BatchRun, LossesAreThoseOfKnownTokens) {
  Engine engine(Golden::open("gemma2").model(), {2, {}});  // its head has a cap
  const std::vector<float> expected = engine.token_logprobs(kRows[0]);
  const PartialResult scored = run_partly(engine, std::span(kRows).first(1), {.losses = true});
  const PartialResult shown = run_partly(engine, std::span(kRows).first(1), {.hooks = {"hook_logits"}, .losses = true});
  EXPECT_TRUE(scored.values.empty());
  ASSERT_EQ(scored.losses.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(scored.losses[i], -expected[i], 1e-5);
    EXPECT_NEAR(shown.losses[i], -expected[i], 1e-5);
  }
  Louder louder("hook_logits");
  const PartialResult edited =
      run_partly(engine, std::span(kRows).first(1), {.edits = &louder, .edited = {"hook_logits"}, .losses = true});
  EXPECT_GT(std::abs(edited.losses[0] - scored.losses[0]), 1e-3);  // of what flows on
}

TEST(BatchRun, GroupsGiveWhatOneStepGives) {
  Engine engine(Golden::open("gpt2_a").model(), {2, {}});
  std::vector<std::vector<int32_t>> rows;
  for (int32_t i = 0; i < 300; ++i) rows.emplace_back(static_cast<size_t>(1 + i % 9), i % 40);
  Louder nobody("none");
  const std::vector<std::string> hooks = {"blocks.0.hook_mlp_out", "blocks.0.attn.hook_pattern"};
  const PartialResult groups = run_partly(engine, rows, {.hooks = hooks});  // 1,500 rows
  const PartialResult one = run_partly(engine, rows, {.hooks = hooks, .edits = &nobody, .edited = {"blocks.0.hook_mlp_out"}});
  for (const std::string& name : groups.order) {
    const Recorder::Value &a = groups.values.at(name), &b = one.values.at(name);
    ASSERT_EQ(a.shape, b.shape);
    for (size_t i = 0; i < a.values.size(); ++i)
      EXPECT_TRUE((std::isnan(a.values[i]) && std::isnan(b.values[i])) || std::abs(a.values[i] - b.values[i]) < 1e-5f) << name;
  }
}

TEST(BatchRun, SaysWhichRowIsWrong) {
  Engine engine(Golden::open("gpt2_a").model(), {2, {}});
  const auto message = [&](const std::vector<std::vector<int32_t>>& rows, const PartialRun& request) {
    try {
      run_partly(engine, rows, request);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_NE(message({{1, 2}, {3, -4}}, {}).find("row 1: token -4 at place 1"), std::string::npos);
  EXPECT_NE(message({{1, 2}, {}}, {}).find("row 1: there are no tokens"), std::string::npos);
  EXPECT_NE(message({}, {}).find("no tokens"), std::string::npos);
  EXPECT_NE(message(kRows, {.hooks = {"hook_embed[positions=5]"}}).find("row 1: "), std::string::npos);
  const std::vector<float> stream(13 * static_cast<size_t>(engine.shape().d_model) - 1);
  EXPECT_NE(message(kRows, {.hooks = {"hook_logits"}, .start_layer = 1, .stream = stream}).find("expected 13 positions"),
            std::string::npos);
}

// Puts a patch into the whole prompt's run.
class Patcher final : public Listener {
 public:
  Patcher(std::string hook, Patch patch) : hook_(std::move(hook)), patch_(patch) {}
  bool wants(std::string_view name) const override { return name == hook_; }
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
    const Tensor changed = ctx.empty(value.shape());
    std::copy_n(value.data<float>(), value.count(), changed.data<float>());
    const int64_t row = heads_first(name)
                            ? (patch_.head * value.dim(1) + patch_.position) * value.dim(2)
                            : patch_.position * value.row_size() + (patch_.head < 0 ? 0 : patch_.head * std::ssize(patch_.value));
    std::copy(patch_.value.begin(), patch_.value.end(), changed.data<float>() + row);
    return changed;
  }

 private:
  std::string hook_;
  Patch patch_;
};

TEST(PatchedRuns, EqualWholeRuns) {
  const std::vector<int32_t> ids = {5, 3, 7, 9, 11, 2, 4, 8, 6, 1, 12, 3, 9};  // longer than gemma2's window
  for (const char* family : {"gpt2_a", "gemma2", "olmo3", "qwen3_moe"}) {
    Engine engine(Golden::open(family).model(), {2, {}});
    PatchedRuns runs(engine, ids);
    for (const char* hook : {"blocks.0.hook_resid_pre", "blocks.1.hook_resid_mid", "blocks.1.attn.hook_z", "blocks.0.attn.hook_k",
                             "blocks.1.attn.hook_pattern"}) {
      const std::vector<int64_t> shape = hook_shape(engine.model(), hook, runs.length());
      const bool pattern = heads_first(hook), possible = PatchedRuns::possible(engine, hook, runs.length());
      if (!possible) {
        EXPECT_TRUE(pattern && std::string(family) == "olmo3") << family << " " << hook;  // whose window hides keys
        EXPECT_THROW(runs.run(hook, {}), InputError);
        continue;
      }
      const auto size = static_cast<size_t>(shape.back());
      std::vector<std::vector<float>> values;
      std::vector<Patch> patches;
      for (const int64_t position : {12, 0, 5, 9}) {
        values.emplace_back(size);
        for (size_t i = 0; i < size; ++i)  // a pattern's patch looks back only
          values.back()[i] = pattern && static_cast<int64_t>(i) > position ? 0.0f : 0.1f * static_cast<float>(i % 5) - 0.1f;
        patches.push_back({position, shape.size() > 2 ? 1 : -1, values.back()});
      }
      for (size_t i = 0; i < patches.size(); ++i) patches[i].value = values[i];
      const FloatVector found = runs.run(hook, patches);
      const auto vocab = static_cast<size_t>(engine.shape().vocab_size);
      size_t first = 0;
      for (const Patch& patch : patches) {
        Patcher patcher(hook, patch);
        const PartialResult whole =
            run_partly(engine, {&ids, 1}, {.hooks = {"hook_logits"}, .edits = &patcher, .edited = {hook}});
        const FloatVector& expected = whole.values.at("hook_logits").values;
        for (size_t i = static_cast<size_t>(patch.position) * vocab; i < expected.size(); ++i)
          ASSERT_NEAR(found[first++], expected[i], 2e-5) << family << " " << hook << " at " << patch.position;
      }
      EXPECT_EQ(first, found.size());
    }
    EXPECT_THROW(runs.run("hook_embed", {}), InputError);
    const std::vector<float> row(static_cast<size_t>(engine.shape().d_model));
    const std::vector<Patch> beyond = {{13, -1, row}}, headless = {{1, 0, row}}, small = {{1, -1, std::span(row).first(1)}};
    EXPECT_THROW(runs.run("blocks.0.hook_resid_pre", beyond), InputError);
    EXPECT_THROW(runs.run("blocks.0.hook_resid_pre", headless), InputError);
    EXPECT_THROW(runs.run("blocks.0.hook_resid_pre", small), ShapeError);
  }
  Engine recurrent(Golden::open("lfm2").model(), {2, {}});
  EXPECT_FALSE(PatchedRuns::possible(recurrent, "blocks.0.hook_resid_pre", 3));
}

}  // namespace
}  // namespace vitrine
