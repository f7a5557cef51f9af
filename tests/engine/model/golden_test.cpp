// Every golden model against the numbers of the implementation that made it.
#include "support/golden.h"

#include <gtest/gtest.h>

#include <numeric>

#include "model/load.h"
#include "ops/recorder.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

std::vector<std::string> families() { return Golden::all(); }

std::vector<int64_t> all_rows(int64_t n) {
  std::vector<int64_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// The tokens of one sequence whose mask is 1.
std::vector<int32_t> unmasked(const GoldenPrompt& prompt, size_t i) {
  std::vector<int32_t> tokens;
  for (size_t t = 0; t < prompt.ids[i].size(); ++t)
    if (prompt.mask[i][t] == 1) tokens.push_back(prompt.ids[i][t]);
  return tokens;
}

// Rows of a golden [position, …] tensor whose mask is 1.
std::vector<float> unmasked_rows(const GoldenTensor& t, const std::vector<int32_t>& mask) {
  std::vector<float> rows;
  const size_t each = t.size() / static_cast<size_t>(t.shape[0]);
  for (size_t i = 0; i < mask.size(); ++i)
    if (mask[i] == 1)
      rows.insert(rows.end(), t.values.begin() + static_cast<std::ptrdiff_t>(i * each),
                  t.values.begin() + static_cast<std::ptrdiff_t>((i + 1) * each));
  return rows;
}

class GoldenModel : public testing::TestWithParam<std::string> {};

TEST_P(GoldenModel, LogitsHiddenStatesAndPatternsMatch) {
  const Golden gold = Golden::open(GetParam());
  const OpenedModel opened = open_model(gold.model());
  const Model& model = *opened.model;
  const int64_t n_layers = model.shape().n_layers;
  const bool after_norm =
      gold.json(gold.has("short/resid_final") ? "meta" : "prompts").value("last_hidden_is_after_final_norm", false);
  ThreadPool pool(2);
  for (const std::string& name : gold.prompts()) {
    const GoldenPrompt prompt = gold.prompt(name);
    for (size_t i = 0; i < prompt.ids.size(); ++i) {
      SCOPED_TRACE(name + " sequence " + std::to_string(i));
      const std::vector<int32_t> tokens = unmasked(prompt, i);
      const auto expected = [&](const std::string& what) { return unmasked_rows(gold[name + "/" + what].at(i), prompt.mask[i]); };
      Context ctx(pool);
      Recorder seen({{"*hook_resid_p*"}, {"*hook_pattern"}});
      ctx.listen(&seen);
      const Step step = Step::of(tokens);
      const Tensor x = model.residual(ctx, step);
      const std::vector<int64_t> rows = all_rows(step.rows());
      const Tensor z = logits(ctx, x, model.head(), rows);
      EXPECT_CLOSE(std::span(z.data<float>(), static_cast<size_t>(z.count())), expected("logits"), gold.tolerance());
      for (int64_t layer = 0; layer < n_layers && gold.has(name + "/hidden.0"); ++layer) {
        SCOPED_TRACE("layer " + std::to_string(layer));
        const std::string block = "blocks." + std::to_string(layer) + ".";
        EXPECT_CLOSE(seen.values().at(block + "hook_resid_pre").values, expected("hidden." + std::to_string(layer)),
                     gold.tolerance());
        if (const std::string attn = name + "/attn." + std::to_string(layer); gold.has(attn)) {
          const GoldenTensor pattern = gold[attn].at(i);
          std::vector<float> kept;  // [head, query, key] without the padding
          const auto size = static_cast<size_t>(pattern.shape[1]);
          for (size_t h = 0; h < static_cast<size_t>(pattern.shape[0]); ++h)
            for (size_t q = 0; q < size; ++q)
              for (size_t k = 0; k < size; ++k)
                if (prompt.mask[i][q] == 1 && prompt.mask[i][k] == 1) kept.push_back(pattern.values[(h * size + q) * size + k]);
          EXPECT_CLOSE(seen.values().at(block + "attn.hook_pattern").values, kept, gold.tolerance());
        }
      }
      const std::string last = "blocks." + std::to_string(n_layers - 1) + ".hook_resid_post";
      if (gold.has(name + "/resid_final")) {
        EXPECT_CLOSE(seen.values().at(last).values, expected("resid_final"), gold.tolerance());
      }
      if (after_norm && gold.has(name + "/hidden.0")) {
        const std::span<const float> normed(x.data<float>(), static_cast<size_t>(x.count()));
        EXPECT_CLOSE(normed, expected("hidden." + std::to_string(n_layers)), gold.tolerance());
      }
    }
  }
}

TEST_P(GoldenModel, OneStepOfManySequencesGivesEachItsOwnLogits) {
  const Golden gold = Golden::open(GetParam());
  const OpenedModel opened = open_model(gold.model());
  ThreadPool pool(2);
  Context ctx(pool);
  for (const std::string& name : gold.prompts()) {
    const GoldenPrompt prompt = gold.prompt(name);
    Step step;
    std::vector<float> expected;
    for (size_t i = 0; i < prompt.ids.size(); ++i) {
      step.add(unmasked(prompt, i));
      const std::vector<float> rows = unmasked_rows(gold[name + "/logits"].at(i), prompt.mask[i]);
      expected.insert(expected.end(), rows.begin(), rows.end());
    }
    const auto frame = ctx.frame();
    const Tensor z = logits(ctx, opened.model->residual(ctx, step), opened.model->head(), all_rows(step.rows()));
    EXPECT_CLOSE(std::span(z.data<float>(), static_cast<size_t>(z.count())), expected, gold.tolerance()) << name;
  }
}

TEST_P(GoldenModel, HookNamesAreThoseOfTheFamily) {
  const Golden gold = Golden::open(GetParam());
  const OpenedModel opened = open_model(gold.model());
  ThreadPool pool(1);
  Context ctx(pool);
  Recorder seen({{"*"}});
  ctx.listen(&seen);
  const std::vector<int32_t> tokens = {5, 3, 7};
  const Step step = Step::of(tokens);
  logits(ctx, opened.model->residual(ctx, step), opened.model->head(), all_rows(1));
  EXPECT_EQ(seen.order(), opened.model->hook_names());
}

TEST_P(GoldenModel, GradientsMatch) {
  const Golden gold = Golden::open(GetParam());
  OpenedModel opened = open_model(gold.model());
  const Checkpoint expected = gold.train();
  const Json meta = gold.json("train");
  const GoldenPrompt prompt = gold.prompt("train");
  ThreadPool pool(2);
  for (const bool recompute : {false, true}) {
    SCOPED_TRACE(recompute ? "blocks recomputed" : "everything kept");
    Context ctx(pool);
    Tape tape(recompute ? Tape::kAllBlocks : 0);
    ctx.record_on(&tape);
    Gradients gradients(*opened.model, false);
    Step step;
    std::vector<int32_t> labels;
    for (size_t i = 0; i < prompt.ids.size(); ++i) {
      step.add(prompt.ids[i]);
      labels.insert(labels.end(), prompt.labels[i].begin() + 1, prompt.labels[i].end());
      labels.push_back(kNotScored);
    }
    const Tensor loss = cross_entropy(ctx, opened.model->residual(ctx, step), opened.model->head(), labels);
    tape.backward(ctx, loss);
    for (const auto& [name, buffer] : gradients.buffers()) {
      SCOPED_TRACE(name);
      const GoldenTensor want = golden_tensor(expected, "grad/" + name);
      const std::span<const float> got(reinterpret_cast<const float*>(buffer.data.data()), buffer.data.size() / sizeof(float));
      float largest = 0;
      for (const float value : want) largest = std::max(largest, std::abs(value));
      ASSERT_EQ(buffer.shape, want.shape);
      // 1e-4 of the tensor's largest magnitude. GPT-2's key bias has a true gradient of zero: what is there is noise.
      EXPECT_CLOSE(got, want, (Tolerance{.abs = std::max(1e-4 * static_cast<double>(largest), 1e-7), .rel = 0}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, GoldenModel, testing::ValuesIn(families()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace vitrine
