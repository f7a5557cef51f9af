// Block types, against the values that the package gguf gives (tests/golden/blocks/make.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "support/golden.h"

namespace vitrine {
namespace {

class Blocks : public testing::TestWithParam<DType> {};

TEST_P(Blocks, DecodeToTheSameBits) {
  const DType type = GetParam();
  const Checkpoint file = open_safetensors(std::string(VITRINE_GOLDEN) + "/blocks/blocks.safetensors");
  const std::string name(name_of(type));
  const StoredTensor* blocks = file.find(name + ".blocks");
  ASSERT_NE(blocks, nullptr);
  const GoldenTensor want = golden_tensor(file, name + ".values");
  ASSERT_EQ(blocks->shape.at(1), static_cast<int64_t>(block_bytes(type)));
  ASSERT_EQ(want.shape, (std::vector<int64_t>{blocks->shape[0], static_cast<int64_t>(block_elements(type))}));
  std::vector<float> got(want.size());
  for (size_t b = 0; b * block_elements(type) < got.size(); ++b)
    if (is_decoded(type)) decode_block(type, blocks->data + b * block_bytes(type), &got[b * block_elements(type)]);
  for (size_t i = 0; i < got.size(); ++i) {
    const float one = element_at(type, blocks->data, i);
    if (!is_decoded(type)) got[i] = one;
    if (std::isnan(want.values[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << i;
    } else {
      ASSERT_EQ(std::memcmp(&got[i], &want.values[i], 4), 0) << "element " << i << ": " << got[i] << ", not " << want.values[i];
    }
    ASSERT_TRUE(std::isnan(one) ? std::isnan(got[i]) : one == got[i]) << i;
  }
}

#define VITRINE_TYPE(name, elements, bytes, number) DType::name,
INSTANTIATE_TEST_SUITE_P(Every, Blocks, testing::Values(DType::q8_0, VITRINE_DECODED_TYPES(VITRINE_TYPE) DType::q4_0),
                         [](const auto& one) { return std::string(name_of(one.param)); });
#undef VITRINE_TYPE

}  // namespace
}  // namespace vitrine
