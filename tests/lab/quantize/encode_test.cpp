// Encoders of block types: against the errors of ggml's encoders on the same weights (tests/golden/quantize/make.py), and on
// weights that no model has.
#include "quantize/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/json.h"
#include "support/golden.h"

namespace vitrine {
namespace {

std::vector<DType> encoded_blocks() {
  std::vector<DType> types;
  for (int type = 0; type < kWeightTypes; ++type)
    if (is_block(static_cast<DType>(type)) && can_encode(static_cast<DType>(type))) types.push_back(static_cast<DType>(type));
  return types;
}

std::vector<float> coded(DType type, const std::vector<float>& row, const float* importance) {
  std::vector<std::byte> blocks(row_bytes(type, row.size()));
  encode_row(type, row.data(), row.size(), importance, blocks.data());
  std::vector<float> values(row.size());
  for (size_t i = 0; i < row.size(); ++i) values[i] = element_at(type, blocks.data(), i);
  return values;
}

double error(const std::vector<float>& a, const std::vector<float>& b, const float* importance) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += (importance == nullptr ? 1.0 : double(importance[i])) * (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i]));
  return sum;
}

class Encode : public testing::TestWithParam<DType> {};

TEST_P(Encode, LosesNoMoreThanGgml) {
  const std::string folder = std::string(VITRINE_GOLDEN) + "/quantize/";
  const Checkpoint file = open_safetensors(folder + "weights.safetensors");
  const Json ggml = read_json(folder + "ggml.json").at(std::string(name_of(GetParam())));
  const GoldenTensor importance = golden_tensor(file, "importance");
  for (const auto& [name, errors] : ggml.items()) {
    const GoldenTensor weights = golden_tensor(file, name);
    const auto width = static_cast<size_t>(weights.shape[1]);
    double plain = 0, weighed = 0;
    for (size_t first = 0; first < weights.size(); first += width) {
      const std::vector<float> row(weights.values.begin() + static_cast<ptrdiff_t>(first),
                                   weights.values.begin() + static_cast<ptrdiff_t>(first + width));
      plain += error(row, coded(GetParam(), row, nullptr), nullptr);
      weighed += error(row, coded(GetParam(), row, importance.values.data()), importance.values.data());
    }
    if (!errors[0].is_null()) {
      EXPECT_LE(plain, errors[0].get<double>() * 1.0001) << name;
    }
    EXPECT_LE(weighed, errors[1].get<double>() * 1.0001) << name;
  }
}

// Any finite weights give finite values, no farther off than the largest of them.
TEST_P(Encode, TakesWeightsOfEverySize) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const float size : {0.0f, 1e-42f, 1e-30f, 1e-6f, 1.0f, 100.0f}) {
    for (const int outliers : {0, 1, 200}) {
      std::vector<float> row(512);
      for (size_t i = 0; i < row.size(); ++i)
        row[i] = size * normal(random) * (static_cast<int>(i % 256) < outliers ? 30.0f : 1.0f);
      float largest = 0;
      for (const float x : row) largest = std::max(largest, std::abs(x));
      const std::vector<float> values = coded(GetParam(), row, nullptr);
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_TRUE(std::isfinite(values[i])) << size << " " << i;
        ASSERT_LE(std::abs(values[i] - row[i]), 1.6f * largest) << size << " " << outliers << " " << i;
      }
    }
  }
}

TEST_P(Encode, EqualWeightsAndNoImportance) {
  for (const float x : {0.5f, -0.5f}) {
    const std::vector<float> row(256, x), values = coded(GetParam(), row, nullptr);
    for (const float v : values) ASSERT_NEAR(v, x, 0.2) << name_of(GetParam());
  }
  const std::vector<float> nothing(256, 0.0f);
  std::vector<float> row(256);
  for (size_t i = 0; i < row.size(); ++i) row[i] = 0.01f * static_cast<float>(i % 17) - 0.08f;
  for (const float v : coded(GetParam(), row, nothing.data())) ASSERT_TRUE(std::isfinite(v));
}

// What a value costs is what the importance says: columns without any leave the others room.
TEST_P(Encode, ImportanceDrawsErrorsAway) {
  if (GetParam() == DType::q8_0) return;  // rounds, and searches nothing
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> row(256 * 16), importance(row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = normal(random);
    importance[i] = i % 4 == 0 ? 1.0f : 1e-4f;
  }
  const double without = error(row, coded(GetParam(), row, nullptr), importance.data());
  EXPECT_LT(error(row, coded(GetParam(), row, importance.data()), importance.data()), without);
}

// The values of blocks are found again: nothing is lost by decoding and encoding anew, but for the rounding of scales.
TEST_P(Encode, BlocksKeepTheirValues) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> row(256 * 8);
  for (float& x : row) x = normal(random);
  const std::vector<float> once = coded(GetParam(), row, nullptr), twice = coded(GetParam(), once, nullptr);
  EXPECT_LE(error(once, twice, nullptr), 0.1 * error(row, once, nullptr));
}

INSTANTIATE_TEST_SUITE_P(Every, Encode, testing::ValuesIn(encoded_blocks()),
                         [](const auto& one) { return std::string(name_of(one.param)); });

// What a type cannot hold is not quietly made smaller.
TEST_P(Encode, TooLargeIsNotFinite) {
  for (const float x :
       {40000.0f, 1e12f, 3e38f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    if (GetParam() == DType::q8_0 && x == 40000.0f) continue;  // which it holds
    std::vector<float> row(256, 0.5f);
    row[7] = x;
    const std::vector<float> values = coded(GetParam(), row, nullptr);
    EXPECT_FALSE(std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) << x;
  }
}

TEST(EncodeRow, RoundsFloats) {
  const float row[] = {1.0f, 1.00048828125f, -65504.0f, 3.0e-8f};
  std::byte out[16];
  encode_row(DType::f16, row, 4, nullptr, out);
  EXPECT_EQ(element_at(DType::f16, out, 1), 1.0f);
  encode_row(DType::bf16, row, 4, nullptr, out);
  EXPECT_EQ(element_at(DType::bf16, out, 2), -65536.0f);
  encode_row(DType::f32, row, 4, nullptr, out);
  EXPECT_EQ(std::memcmp(out, row, 16), 0);
}

}  // namespace
}  // namespace vitrine
