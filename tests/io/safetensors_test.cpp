#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace vitrine {
namespace {

const std::string kGolden = VITRINE_GOLDEN;

TEST(Safetensors, OpensEveryGoldenModel) {
  for (const auto& model : std::filesystem::directory_iterator(kGolden + "/models")) {
    const Checkpoint checkpoint = open_safetensors((model.path() / "model").string());
    EXPECT_GT(checkpoint.tensors().size(), 10u) << model.path();
    EXPECT_EQ(checkpoint.copied_bytes(), 0u);
    const size_t file_size = std::filesystem::file_size(model.path() / "model/model.safetensors");
    EXPECT_LT(checkpoint.bytes(), file_size);
    EXPECT_GT(checkpoint.bytes(), file_size - 16384);
  }
}

}  // namespace
}  // namespace vitrine
