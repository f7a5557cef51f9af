// The residual stream as a sum for every family, and what is read off it, against transformers (tests/golden/parts).
#include "inspect/parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "hooks/trace.h"
#include "inspect/support.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

// Every golden model and every variant: odd sizes, windows, caps, biases, shared key heads, norms before, after and both.
std::vector<std::string> every_model() {
  std::vector<std::string> paths;
  for (const std::string& name : Golden::all()) paths.push_back("models/" + name + "/model");
  for (const auto& entry : std::filesystem::directory_iterator(std::string(VITRINE_GOLDEN) + "/variants"))
    if (entry.is_directory()) paths.push_back("variants/" + entry.path().filename().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<int32_t> some_ids(const ModelShape& shape, int64_t n) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>((i * i * 7 + 11 * i + 3) % shape.vocab_size));
  return ids;
}

double largest(std::span<const float> numbers) {
  double most = 0;
  for (const float x : numbers) most = std::max(most, std::abs(static_cast<double>(x)));
  return most;
}

class PartsOfEveryModel : public testing::TestWithParam<std::string> {
 protected:
  // Weights that are not f32 multiply by rounded operands otherwise, depending on the rows of a step.
  PartsOfEveryModel() : engine(std::string(VITRINE_GOLDEN) + "/" + GetParam(), {2, {.f32 = true}}) {}
  Engine engine;
};

TEST_P(PartsOfEveryModel, AddUpToTheStreamAtEveryPointOfIt) {
  const std::vector<int32_t> ids = some_ids(engine.shape(), 13);
  const std::vector<std::string> points = {"blocks.*.hook_resid_*"};
  const Recorder seen = trace_to_memory(engine, ids, points);
  size_t before = 0;
  for (int64_t layer = 0; layer < engine.shape().n_layers; ++layer)
    for (const char* point : {"hook_resid_pre", "hook_resid_mid", "hook_resid_post"}) {
      const std::string name = "blocks." + std::to_string(layer) + "." + point;
      SCOPED_TRACE(name);
      if (engine.model().record().hook(name) == nullptr) {  // attention and MLP are added together
        EXPECT_THROW(stream_parts(engine, ids, {.until = name}), InputError);
        continue;
      }
      const StreamParts parts = stream_parts(engine, ids, {.positions = {0, 12, 5}, .until = name});
      const Recorder::Value& whole = seen.values().at(name);
      for (size_t r = 0; r < parts.positions.size(); ++r) {
        const auto row =
            std::span(whole.values)
                .subspan(static_cast<size_t>(parts.positions[r] * parts.d_model), static_cast<size_t>(parts.d_model));
        // The stream is the model's own; watching the inside of attention runs its stepwise form.
        EXPECT_CLOSE(parts.stream_at(r), std::vector<float>(row.begin(), row.end()), Tolerance{.abs = 2e-5, .rel = 1e-4});
        std::vector<float> sum(static_cast<size_t>(parts.d_model));
        for (size_t p = 0; p < parts.parts.size(); ++p)
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts.part(p, r)[i];
        EXPECT_CLOSE(sum, std::vector<float>(row.begin(), row.end()), Tolerance{.abs = 1e-5 * largest(row), .rel = 1e-5});
      }
      EXPECT_LE(parts.gap, 5e-6 * std::max(1.0, largest(parts.stream)));
      EXPECT_GE(parts.parts.size(), before);  // parts only come, none goes
      before = parts.parts.size();
    }
}

TEST_P(PartsOfEveryModel, AttributionPlusRemainderIsTheLogit) {
  const std::vector<int32_t> ids = some_ids(engine.shape(), 11),
                             tokens = {0, 5, static_cast<int32_t>(engine.shape().vocab_size) - 1};
  const std::vector<int64_t> positions = {10, 0, 6};
  const std::vector<std::string> names = {"hook_logits"};
  const Recorder seen = trace_to_memory(engine, ids, names);
  const FloatVector& z = seen.values().at("hook_logits").values;
  const LogitAttribution result = attribute_logits(engine, ids, tokens, positions);
  ASSERT_EQ(result.logits.size(), 9u);
  for (const LogitAttribution::Logit& logit : result.logits) {
    SCOPED_TRACE("token " + std::to_string(logit.token) + " after position " + std::to_string(logit.position));
    ASSERT_EQ(logit.parts.size(), result.parts.size());
    const auto expected = static_cast<double>(z[static_cast<size_t>(logit.position * engine.shape().vocab_size + logit.token)]);
    double sum = logit.norm_bias + logit.head_bias + logit.rounding, size = 0;
    for (const double part : logit.parts) sum += part, size += std::abs(part);
    EXPECT_NEAR(sum, logit.before_cap, 1e-12 * (1 + size));
    EXPECT_NEAR(logit.logit, expected, 2e-5 + 1e-4 * std::abs(expected));
    EXPECT_NEAR(result.softcap != 0 ? result.softcap * std::tanh(sum / result.softcap) : sum, expected,
                2e-5 + 1e-4 * std::abs(expected));
    // What neither parts nor biases account for is rounding.
    EXPECT_LE(std::abs(logit.rounding), 1e-5 * std::max(std::abs(logit.before_cap), size));
  }
  // The most likely token is the default, and its logit is made of parts and biases to 1e-4 of itself, after every position.
  const LogitAttribution most_likely = attribute_logits(engine, ids, {}, {});
  ASSERT_EQ(most_likely.logits.size(), 1u);
  EXPECT_EQ(most_likely.logits[0].position, 10);
  EXPECT_EQ(most_likely.logits[0].token, engine.predict(ids, 1, false)[0].top[0].token);
  std::vector<int64_t> all(ids.size());
  std::iota(all.begin(), all.end(), 0);
  for (const LogitAttribution::Logit& logit : attribute_logits(engine, ids, {}, all).logits)
    EXPECT_LE(std::abs(logit.rounding), 1e-4 * std::abs(logit.before_cap)) << logit.position;
}

TEST_P(PartsOfEveryModel, TheLensEndsAtThePrediction) {
  const std::vector<int32_t> ids = some_ids(engine.shape(), 9);
  const LogitLens lens = logit_lens(engine, ids, {}, 3);
  ASSERT_EQ(lens.points.size(), static_cast<size_t>(engine.shape().n_layers) + 1);
  ASSERT_EQ(lens.positions.size(), ids.size());
  const std::vector<Prediction> predicted = engine.predict(ids, 3, true);
  for (size_t r = 0; r < ids.size(); ++r) {
    const LensReading& last = lens.at(lens.points.size() - 1, r);
    EXPECT_EQ(last.rank, 1);
    EXPECT_NEAR(last.kl, 0, 1e-9);
    ASSERT_EQ(last.top.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(last.top[i].logprob, predicted[r].top[i].logprob, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, PartsOfEveryModel, testing::ValuesIn(every_model()), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

// Numbers of transformers in float64, which made its parts from its own modules' inputs and the attribution by autograd.
class PartsAgainstTransformers : public testing::TestWithParam<std::string> {};

TEST_P(PartsAgainstTransformers, PartsAttributionAndLens) {
  const std::string golden = std::string(VITRINE_GOLDEN) + "/parts/" + GetParam() + ".safetensors";
  const std::string as_model = std::string(VITRINE_GOLDEN) + "/models/" + GetParam() + "/model";
  Engine engine(std::filesystem::exists(as_model) ? as_model : std::string(VITRINE_GOLDEN) + "/variants/" + GetParam(), {2, {}});
  const Checkpoint file = open_safetensors(golden);
  const auto integers = [&](const char* name) {
    const GoldenTensor t = golden_tensor(file, name);
    return std::vector<int64_t>(t.begin(), t.end());
  };
  const std::vector<int64_t> ids64 = integers("ids"), positions = integers("positions"), tokens64 = integers("tokens");
  const std::vector<int32_t> ids(ids64.begin(), ids64.end()), tokens(tokens64.begin(), tokens64.end());

  const StreamParts parts = stream_parts(engine, ids, {.positions = positions});
  std::string names;
  for (const StreamPart& part : parts.parts) names += (names.empty() ? "" : ",") + part.name;
  EXPECT_EQ(names, file.metadata().at("parts"));
  EXPECT_CLOSE(parts.values, golden_tensor(file, "parts"), Tolerance{.abs = 2e-5, .rel = 1e-4});

  const LogitAttribution attribution = attribute_logits(engine, ids, tokens, positions);
  std::vector<double> values, norm_bias, before_cap, logit;
  for (const LogitAttribution::Logit& one : attribution.logits) {
    values.insert(values.end(), one.parts.begin(), one.parts.end());
    norm_bias.push_back(one.norm_bias);
    before_cap.push_back(one.before_cap);
    logit.push_back(one.logit);
  }
  const Tolerance tolerance{.abs = 2e-5, .rel = 1e-4};
  const auto close = [&](const std::vector<double>& ours, const char* name) {
    const GoldenTensor expected = golden_tensor(file, name);
    return close_to<double, float>(ours, expected.values, tolerance, expected.shape);
  };
  EXPECT_TRUE(close(values, "attribution"));
  EXPECT_TRUE(close(norm_bias, "norm_bias"));
  EXPECT_TRUE(close(before_cap, "before_cap"));
  EXPECT_TRUE(close(logit, "logit"));

  const LogitLens lens = logit_lens(engine, ids, positions, 5);
  std::vector<double> logprob, kl;
  std::vector<int64_t> rank;
  for (const LensReading& reading : lens.readings) {
    for (const TokenLogprob& top : reading.top) logprob.push_back(static_cast<double>(top.logprob));
    kl.push_back(reading.kl);
    rank.push_back(reading.rank - 1);  // the reference counts from 0
  }
  EXPECT_TRUE(close(logprob, "lens_logprob"));
  EXPECT_TRUE(close(kl, "lens_kl"));
  EXPECT_EQ(rank, integers("lens_rank"));
}

INSTANTIATE_TEST_SUITE_P(Golden, PartsAgainstTransformers,
                         testing::Values("gpt2_a", "gpt2_b", "gemma", "gemma2", "gemma2_caps_mha", "llama", "llama_biases",
                                         "mistral", "qwen2", "olmo2", "granite", "lfm2", "lfm2_biases"),
                         [](const auto& test) { return test.param; });

template <class F>
void expect_input_error(F&& f, const std::vector<std::string>& words) {
  try {
    f();
    ADD_FAILURE() << "accepted";
  } catch (const InputError& e) {
    for (const std::string& word : words) EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
  }
}

TEST(Parts, RefusesWhatIsNotThere) {
  Engine engine(Golden::open("gpt2_a").model(), {1, {}});
  const std::vector<int32_t> ids = {5, 3, 7}, outside = {512};
  const std::vector<int64_t> beyond = {3}, negative = {-1};
  expect_input_error([&] { stream_parts(engine, ids, {.positions = {1, 3}}); }, {"position 3", "3 tokens (0 to 2)"});
  expect_input_error([&] { attribute_logits(engine, ids, outside, {}); }, {"token 512", "0 to 511"});
  expect_input_error([&] { attribute_logits(engine, ids, {}, negative); }, {"position -1"});
  expect_input_error([&] { logit_lens(engine, ids, beyond, 3); }, {"position 3"});
  expect_input_error([&] { stream_parts(engine, ids, {.until = "blocks.3.hook_resid_post"}); },
                     {"blocks.3.hook_resid_post", "0 to 2"});
  expect_input_error([&] { stream_parts(engine, ids, {.until = "blocks.1.hook_mlp_out"}); }, {"no point of the residual stream"});
  expect_input_error([&] { stream_parts(engine, ids, {.positions = {0, 1, 2}, .memory = 4096}); }, {"3 position(s)", "4 KiB"});
  expect_input_error([&] { logit_lens(engine, ids, {}, 3, 4096); }, {"3 position(s)", "4 KiB"});
  expect_input_error([&] { stream_parts(engine, {}, {}); }, {"no tokens"});
}

TEST(Parts, OfNotANumberAreAnErrorThatSaysSo) {
  const Scratch scratch;
  const std::string broken = copy_of(Golden::open("gpt2_a"), scratch / "nan", [](std::vector<OwnedTensor>& tensors) {
    for (OwnedTensor& t : tensors)
      if (t.name.ends_with("h.1.mlp.c_fc.bias")) std::fill(t.bytes.begin(), t.bytes.end(), std::byte{0xff});
  });
  Engine engine(broken, {1, {}});
  const std::vector<int32_t> ids = {5, 3, 7};
  EXPECT_THROW(stream_parts(engine, ids), RunError);
  EXPECT_THROW(attribute_logits(engine, ids, {}, {}), RunError);
  EXPECT_THROW(logit_lens(engine, ids, {}, 3), RunError);
  EXPECT_EQ(engine.context().listener(), nullptr);
}

}  // namespace
}  // namespace vitrine
