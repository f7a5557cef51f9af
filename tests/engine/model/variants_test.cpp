// Configurations that the golden models do not show: rope scaling, biases, head sizes, windows, layer types, caps, activations,
// old and new key names, shards, files of the bare model. Answers by tests/golden/variants/make.py.
#include <gtest/gtest.h>

#include "run.h"

namespace vitrine {
namespace {

class Variant : public testing::TestWithParam<std::string> {};

// Weights that are not f32 multiply in their own precision, unless they are widened.
Numerics numerics_of(const OpenedModel& opened) { return {.f32 = opened.files.config.contains("quantization_config")}; }

TEST_P(Variant, LogitsAndHiddenStatesMatch) {
  const std::string dir = std::string(VITRINE_GOLDEN) + "/variants/" + GetParam();
  const Checkpoint golden = open_safetensors(dir + "/golden.safetensors");
  const OpenedModel opened = open_model(dir);
  const Tolerance tolerance = tolerance_for(static_cast<double>(golden_tensor(golden, "distance").values[0]));
  ThreadPool pool(2);
  for (const std::string prompt : {"0/", "1/"}) {
    SCOPED_TRACE("prompt " + prompt);
    const std::vector<int32_t> ids = ids_of(golden_tensor(golden, prompt + "ids"));
    expect_forward(run_forward(*opened.model, ids, numerics_of(opened), pool), golden, prompt, tolerance);
    Numerics exact = numerics_of(opened);
    exact.exact = true;
    expect_forward(run_forward(*opened.model, ids, exact, pool), golden, prompt, tolerance);
  }
}

TEST_P(Variant, CachedStepsMatch) {
  const std::string dir = std::string(VITRINE_GOLDEN) + "/variants/" + GetParam();
  const Checkpoint golden = open_safetensors(dir + "/golden.safetensors");
  const OpenedModel opened = open_model(dir);
  const Tolerance tolerance = tolerance_for(static_cast<double>(golden_tensor(golden, "distance").values[0]));
  const std::vector<int32_t> ids = ids_of(golden_tensor(golden, "1/ids"));
  ThreadPool pool(2);
  Context ctx(pool);
  ctx.numerics = numerics_of(opened);
  KvCache cache(opened.model->cache_layers(), static_cast<int64_t>(ids.size()), 9);
  CacheSequence sequence = cache.sequence();
  std::vector<float> got;
  size_t done = 0;
  for (const size_t rows : {4, 1, 9, 1, 4}) {
    Step step;
    step.add(std::span(ids).subspan(done, rows), &sequence);
    const std::vector<float> part = all_logits(ctx, *opened.model, step);
    got.insert(got.end(), part.begin(), part.end());
    step.commit();
    done += rows;
  }
  ASSERT_EQ(done, ids.size());
  EXPECT_CLOSE(got, golden_tensor(golden, "1/logits"), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Every, Variant, testing::ValuesIn(golden_folders("variants")),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace vitrine
