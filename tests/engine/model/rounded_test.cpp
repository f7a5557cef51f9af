// Copies of the golden models in 16 bit: under --compute f32 they meet the numbers of their rounded weights like any f32 model;
// by default the error stays what rounded operands cost. Answers by tests/golden/variants/make.py.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "kernels/table.h"
#include "run.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

struct Case {
  std::string model;
  DType dtype;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& model : Golden::all())
    for (const DType dtype : {DType::f16, DType::bf16}) all.push_back({model, dtype});
  return all;
}

class Rounded : public testing::TestWithParam<Case> {
 protected:
  // A copy of the golden model with every tensor in the given type.
  void SetUp() override {
    const Golden gold = Golden::open(GetParam().model);
    const Checkpoint source = open_safetensors(gold.model() + "/model.safetensors");
    std::deque<std::vector<uint16_t>> numbers;
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, tensor] : source.tensors()) {
      const GoldenTensor values = as_floats(tensor);
      auto& narrow = numbers.emplace_back(values.size());
      for (size_t i = 0; i < values.size(); ++i)
        narrow[i] = GetParam().dtype == DType::f16 ? f32_to_f16(values.values[i]) : f32_to_bf16(values.values[i]);
      tensors.push_back({name, GetParam().dtype, tensor.shape, narrow.data()});
    }
    write_safetensors(scratch_ / "model.safetensors", tensors);
    std::filesystem::copy_file(gold.model() + "/config.json", scratch_ / "config.json");
    opened_ = open_model(scratch_.path());
  }

  GoldenTensor expected(const std::string& what) const {
    return golden_tensor(golden_, GetParam().model + "/" + std::string(name_of(GetParam().dtype)) + "/" + what);
  }
  double number(const std::string& what) const { return static_cast<double>(expected(what).values[0]); }

  Scratch scratch_;
  OpenedModel opened_;
  Checkpoint golden_ = open_safetensors(std::string(VITRINE_GOLDEN) + "/rounded/" + GetParam().model + ".safetensors");
  ThreadPool pool_{2};
};

TEST_P(Rounded, MeetsTheGoldenToleranceInF32) {
  const std::string prefix = GetParam().model + "/" + std::string(name_of(GetParam().dtype)) + "/";
  const Tolerance tolerance = tolerance_for(number("distance"));
  const std::vector<int32_t> ids = ids_of(expected("ids"));
  expect_forward(run_forward(*opened_.model, ids, {.f32 = true}, pool_), golden_, prefix, tolerance);
  expect_forward(run_forward(*opened_.model, ids, {.f32 = true, .exact = true}, pool_), golden_, prefix, tolerance);
}

// Few rows: activations stay f32, stored weights are widened exactly.
TEST_P(Rounded, MeetsTheGoldenToleranceByDefaultForFewRows) {
  const std::vector<int32_t> ids = ids_of(expected("short/ids"));
  ASSERT_LE(ids.size(), kFewRows);
  EXPECT_CLOSE(run_forward(*opened_.model, ids, {}, pool_).logits, expected("short/logits"), tolerance_for(number("distance")));
}

// More rows: operands are rounded to bf16. Two errors of the same size and random directions may differ by chance; a wrong
// kernel, a third rounding or sums in bf16 are further away than these factors.
TEST_P(Rounded, ErrsByDefaultNoMoreThanRoundedOperandsDo) {
  const std::vector<int32_t> ids = ids_of(expected("ids"));
  ASSERT_GT(ids.size(), kFewRows);
  const std::vector<float> got = run_forward(*opened_.model, ids, {}, pool_).logits;
  const GoldenTensor exact = expected("exact");
  ASSERT_EQ(got.size(), exact.size());
  double squares = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(exact.values[i]));
    squares += error * error;
    largest = std::max(largest, error);
  }
  EXPECT_LE(std::sqrt(squares / static_cast<double>(got.size())), 1.25 * number("tile_rms"));
  EXPECT_LE(largest, 1.5 * number("tile_max"));
}

INSTANTIATE_TEST_SUITE_P(Every, Rounded, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.model + "_" + std::string(name_of(test.param.dtype)); });

}  // namespace
}  // namespace vitrine
