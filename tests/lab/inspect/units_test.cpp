// What the units of an MLP write into the vocabulary, against numpy (tests/golden/units) and against the MLP as a whole.
#include "inspect/units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "inspect/parts.h"
#include "inspect/support.h"
#include "inspect/weights.h"
#include "support/golden.h"

namespace vitrine {
namespace {

std::string model_of_units(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/models/" + name + "/model"; }

class UnitsAgainstNumpy : public testing::TestWithParam<std::string> {};

TEST_P(UnitsAgainstNumpy, ValuesAndLogits) {
  Engine engine(model_of_units(GetParam()), {2, {.f32 = true}});
  const Checkpoint file = open_safetensors(std::string(VITRINE_GOLDEN) + "/units/" + GetParam() + ".safetensors");
  const GoldenTensor ids64 = golden_tensor(file, "ids"), positions = golden_tensor(file, "positions"),
                     units = golden_tensor(file, "units"), values = golden_tensor(file, "values"),
                     logits = golden_tensor(file, "logits");
  const std::vector<int32_t> ids(ids64.begin(), ids64.end());
  const int64_t layers = engine.shape().n_layers, vocab = engine.shape().vocab_size;
  const auto wanted = static_cast<size_t>(units.shape[2]);
  ASSERT_EQ(logits.shape, (std::vector<int64_t>{layers, std::ssize(positions.values), units.shape[2], vocab}));
  size_t at = 0;
  for (int64_t layer = 0; layer < layers; ++layer)
    for (const auto position : positions) {
      SCOPED_TRACE(testing::Message() << "layer " << layer << ", position " << position);
      const UnitWrites found = unit_writes(
          engine, ids,
          {.layer = layer, .position = static_cast<int64_t>(position), .units = static_cast<int64_t>(wanted), .tokens = vocab});
      ASSERT_EQ(found.units.size(), wanted);
      EXPECT_EQ(found.d_ff, engine.shape().d_ff);
      for (const UnitWrites::Unit& unit : found.units) {
        EXPECT_EQ(unit.unit, static_cast<int64_t>(units.values[at]));
        EXPECT_NEAR(unit.value, values.values[at], 2e-5 + 1e-4 * std::abs(values.values[at]));
        ASSERT_EQ(unit.promoted.size(), static_cast<size_t>(vocab));
        for (size_t i = 0; i < unit.promoted.size(); ++i) {
          const TokenLogit& one = unit.promoted[i];
          const auto expected =
              static_cast<double>(logits.values[at * static_cast<size_t>(vocab) + static_cast<size_t>(one.token)]);
          EXPECT_NEAR(one.logit, expected, 2e-5 + 1e-4 * std::abs(expected)) << "token " << one.token;
          const size_t before = i == 0 ? 0 : i - 1;
          EXPECT_LE(one.logit, unit.promoted[before].logit);
          EXPECT_GE(unit.suppressed[i].logit, unit.suppressed[before].logit);
        }
        EXPECT_EQ(unit.suppressed.front().logit, unit.promoted.back().logit);
        ++at;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Golden, UnitsAgainstNumpy,
                         testing::Values("classic_post", "gemma2", "gpt2_a", "granite", "llama", "olmo2"));

// All units together, and the bias of the MLP's output, are what the MLP adds to a logit.
class UnitsOfEveryModel : public testing::TestWithParam<std::string> {};

TEST_P(UnitsOfEveryModel, SumToWhatTheirMlpAdds) {
  Engine engine(model_of_units(GetParam()), {2, {.f32 = true}});
  const NamedWeights weights(*engine.opened().model);
  const ModelShape shape = engine.shape();
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < 9; ++i) ids.push_back(static_cast<int32_t>((i * i * 7 + 11 * i + 3) % shape.vocab_size));
  const std::vector<int32_t> tokens{5};
  const std::vector<int64_t> positions{6};
  const LogitAttribution whole = attribute_logits(engine, ids, tokens, positions);
  for (int64_t layer = 0; layer < shape.n_layers; ++layer) {
    const UnitsOptions options{.layer = layer, .position = -3, .units = shape.d_ff * 4, .tokens = shape.vocab_size};
    if (engine.model().layer(layer).experts) {
      EXPECT_THROW(unit_writes(engine, ids, options), UsageError);
      continue;
    }
    if (engine.model().record().hook("blocks." + std::to_string(layer) + ".hook_mlp_out") == nullptr) {
      EXPECT_THROW(unit_writes(engine, ids, options), UsageError);
      continue;
    }
    const Weight& out = weights.matrix("blocks." + std::to_string(layer) + ".mlp.W_out");
    if (out.bias) continue;  // a part of the MLP that no unit writes
    const UnitWrites found = unit_writes(engine, ids, options);
    EXPECT_EQ(std::ssize(found.units), found.d_ff);
    double sum = 0, most = 0;
    for (const UnitWrites::Unit& unit : found.units)
      for (const TokenLogit& one : unit.promoted)
        if (one.token == 5) {
          sum += one.logit;
          most += std::abs(one.logit);
        }
    double mlp = NAN;
    for (size_t p = 0; p < whole.parts.size(); ++p)
      if (whole.parts[p].kind == StreamPart::Kind::mlp && whole.parts[p].layer == layer) mlp = whole.logits[0].parts[p];
    EXPECT_NEAR(sum, mlp, 1e-5 + 1e-5 * most) << "layer " << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, UnitsOfEveryModel, testing::ValuesIn(Golden::all()));

TEST(Units, RefusalsNameTheRange) {
  Engine engine(model_of_units("llama"), {1, {}});
  const std::vector<int32_t> ids{5, 3, 7};
  const auto says = [&](const UnitsOptions& options) {
    try {
      unit_writes(engine, ids, options);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_NE(says({.layer = 99}).find("0 to 2"), std::string::npos) << says({.layer = 99});
  EXPECT_NE(says({.layer = -2}).find("0 to 2"), std::string::npos);
  EXPECT_NE(says({.position = 3}).find("0 to 2"), std::string::npos) << says({.position = 3});
  EXPECT_NE(says({.position = -4}).find("0 to 2"), std::string::npos);
  EXPECT_EQ(unit_writes(engine, ids, {.units = 1 << 20, .tokens = 1 << 20}).units.size(),
            static_cast<size_t>(engine.shape().d_ff));
}

}  // namespace
}  // namespace vitrine
