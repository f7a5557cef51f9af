// The arithmetic of a run's memory. Its numbers are compared with runs by bench/memory_of_runs.py.
#include "inspect/run_memory.h"

#include <gtest/gtest.h>

#include <cmath>

#include "inspect/info.h"
#include "support.h"

namespace vitrine {
namespace {

const std::string kLargeConfigs = std::string(VITRINE_GOLDEN) + "/configs/";

// 3 layers of width 64 with 8 heads and 2 key/value heads of 8, 96 hidden units and 512 pieces, in f32; the head is not tied.
RunMemory of_llama(int64_t context) {
  const OpenedModel opened = open_model(Golden::open("llama").model());
  return run_memory(*opened.model,
                    {.context = context, .weights_bytes = 611072, .cache_bytes = 1 << 20, .header_bytes = 7, .pieces = 10}, {});
}

TEST(RunMemory, ActivationsAreThoseOfTheLargestStep) {
  // The peak of the arena, which tests/engine/model/record_test.cpp holds to runs, and what else there is.
  const OpenedModel opened = open_model(Golden::open("llama").model());
  const double fixed = 15.5 * (1 << 20) + 4 * 2 * 512 + 230 * 10 + 7;
  for (const int64_t rows : {100, 512}) {
    const StepRecord step = record_step(*opened.model, {.rows = rows, .cached = true, .threads = usable_cores()});
    EXPECT_NEAR(static_cast<double>(of_llama(rows).working), fixed + static_cast<double>(step.peak_bytes), 1);
  }
  EXPECT_GT(of_llama(512).working, of_llama(100).working);
  EXPECT_EQ(of_llama(100000).working, of_llama(512).working);
}

TEST(RunMemory, ValuesOfPositionsThatAreNotThereTakeNoMemory) {
  EXPECT_EQ(of_llama(256).cache, 1 << 20);
  EXPECT_EQ(of_llama(100).cache, (1 << 20) - (256 - 100) * 3 * 16 * 4);
}

TEST(RunMemory, OfAnEmbeddingThatIsNotTheHeadOnlyTouchedRowsCount) {
  const double table = 512 * 64 * 4;
  EXPECT_NEAR(static_cast<double>(of_llama(1).weights), 611072 - table * std::exp(-1 / (table / (128 << 10))), 1);
  EXPECT_EQ(of_llama(5000).weights, 611072);
  // Gemma's is the head, too: all of it is read.
  const ModelInfo gemma = model_info(kLargeConfigs + "gemma-2b.json", {.context = 1});
  EXPECT_EQ(gemma.run.weights, gemma.bf16_bytes);
}

// Of 4 experts 2 are chosen: a token leaves half of them alone, and 20 tokens none.
TEST(RunMemory, ExpertsThatNoTokenChoosesAreNotRead) {
  const OpenedModel opened = open_model(Golden::open("mixtral").model());
  const auto weights = [&](int64_t context) {
    return static_cast<double>(run_memory(*opened.model, {.context = context, .weights_bytes = 1 << 20}, {}).weights);
  };
  const double layers = 2, experts = layers * 4 * 3 * 32 * 32 * 4, table = 512 * 32 * 4;
  EXPECT_NEAR(weights(1), (1 << 20) - experts / 2 - table * std::exp(-1.0), 1);
  EXPECT_NEAR(weights(100), 1 << 20, 1);
}

TEST(RunMemory, IsWhatInfoSays) {
  const ModelInfo info = model_info(Golden::open("llama").model(), {.context = 64});
  const Json run = to_json(info).at("run");
  EXPECT_EQ(run.at("bytes"),
            run.at("weights").get<int64_t>() + run.at("cache").get<int64_t>() + run.at("working").get<int64_t>());
  EXPECT_EQ(run.at("bytes"), info.run.bytes());
}

}  // namespace
}  // namespace vitrine
