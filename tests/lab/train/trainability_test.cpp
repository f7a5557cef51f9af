// Vanishing, exploding and healthy gradients at the first step, from the configurations of examples/ (docs/trainability.md).
#include <gtest/gtest.h>

#include <cmath>

#include "base/mapped_file.h"
#include "train/layer_watch.h"
#include "train/run_support.h"
#include "train/train.h"

namespace vitrine {
namespace {

// |gradient at the stream into the first layer| / |gradient at the stream into the last| before the first update.
double ratio(const std::string& example, uint64_t seed) {
  const Scratch scratch;
  TrainConfig config = read_train_config(std::string(VITRINE_SOURCE) + "/examples/" + example);
  config.train_data = {{small_data(scratch, "data", 200, seed)}};
  config.validation_data.clear();
  config.eval_every = 0;
  config.tokenizer.clear();
  config.sample_every = 0;
  config.sample_prompts.clear();
  config.out = scratch / "run";
  config.seed = seed;
  config.steps = 1;
  config.schedule.warmup = 0;
  config.schedule.length = 0;
  config.layers_every = 1;
  config.threads = 2;
  train(config, false);
  const Json stream = metrics_of(config.out).back().at("layer_stream_grad_norm");
  const std::string last = "blocks." + std::to_string(stream.size() - 2);
  return stream.at("blocks.0").get<double>() / stream.at(last).get<double>();
}

class Trainability : public testing::TestWithParam<uint64_t> {};

TEST_P(Trainability, WithoutNormsSmallWeightsLetTheGradientVanish) { EXPECT_LT(ratio("vanishing.yaml", GetParam()), 1e-6); }
TEST_P(Trainability, WithoutNormsLargeWeightsLetItExplode) { EXPECT_GT(ratio("exploding.yaml", GetParam()), 1e6); }
TEST_P(Trainability, WithNormsItReachesTheFirstLayerAsItLeftTheLast) {
  const double healthy = ratio("healthy.yaml", GetParam());
  EXPECT_GT(healthy, 0.1);
  EXPECT_LT(healthy, 10);
}
INSTANTIATE_TEST_SUITE_P(Seeds, Trainability, testing::Values(1, 2, 3));

}  // namespace
}  // namespace vitrine
