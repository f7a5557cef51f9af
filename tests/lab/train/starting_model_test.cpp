// What training starts from.
#include "train/starting_model.h"

#include <gtest/gtest.h>

#include "support/golden.h"

namespace vitrine {
namespace {

// A configuration of a model whose files pack weights gives fresh weights that are not packed: a checkpoint of them says nothing
// of packing, and has to be read as it was written.
TEST(StartingModel, FreshWeightsAreNotPacked) {
  TrainConfig config;
  config.path = "run.yaml";
  config.config_path = std::string(VITRINE_GOLDEN) + "/variants/gpt_oss_mxfp4/config.json";
  const OpenedModel opened = open_starting_model(config, "");
  EXPECT_FALSE(opened.files.config.contains("quantization_config"));
  ModelFiles written = opened.files;
  const std::unique_ptr<Model> read = model_from_config(written);
  ASSERT_EQ(read->tensors().size(), opened.model->tensors().size());
  for (size_t i = 0; i < read->tensors().size(); ++i)
    EXPECT_EQ(read->tensors()[i].file_shape(false), opened.model->tensors()[i].file_shape(false)) << read->tensors()[i].ours;
}

}  // namespace
}  // namespace vitrine
