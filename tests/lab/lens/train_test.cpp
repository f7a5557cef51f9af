// Tuned lenses against the Python package tuned-lens and torch (tests/golden/tuned_lens), and what a run must do.
#include "lens/train.h"

#include <gtest/gtest.h>

#include <cmath>

#include "inspect/parts.h"
#include "io/atomic_file.h"
#include "support/close.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

std::string golden_lens(const std::string& file) { return std::string(VITRINE_GOLDEN) + "/tuned_lens/" + file; }
const EngineOptions kPlain = {2, {.f32 = true}};

std::vector<int32_t> ids_in(const GoldenTensor& t) { return {t.begin(), t.end()}; }

class TunedLensGolden : public testing::TestWithParam<std::string> {};

TEST_P(TunedLensGolden, LogitsAndKlOfEveryLayer) {
  Engine engine(Golden::open(GetParam()).model(), kPlain);
  const Checkpoint file = open_safetensors(golden_lens(GetParam() + "_numbers.safetensors"));
  const std::vector<int32_t> ids = ids_in(golden_tensor(file, "ids"));
  const GoldenTensor logits = golden_tensor(file, "logits"), kl = golden_tensor(file, "kl");
  const auto lens = open_tuned_lens(golden_lens(GetParam() + ".safetensors"), engine);
  const auto vocab = static_cast<size_t>(engine.shape().vocab_size), layers = lens->translators.size();
  const LogitLens plain = logit_lens(engine, ids, {}, 1),
                  tuned = logit_lens(engine, ids, {}, engine.shape().vocab_size, 0, nullptr, lens.get());
  ASSERT_EQ(tuned.points.size(), layers + 1);
  ASSERT_EQ(logits.values.size(), layers * ids.size() * vocab);
  for (size_t at = 0; at < layers * ids.size(); ++at) {
    const float* want = logits.values.data() + at * vocab;
    double sum = 0;
    for (size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(want[v]));
    ASSERT_EQ(tuned.readings[at].top.size(), vocab);
    for (const TokenLogprob& token : tuned.readings[at].top)
      ASSERT_NEAR(static_cast<double>(token.logprob), static_cast<double>(want[token.token]) - std::log(sum), 1e-4) << at;
    EXPECT_NEAR(tuned.readings[at].kl, static_cast<double>(kl.values[at]), 1e-4) << at;
  }
  for (size_t r = 0; r < ids.size(); ++r)
    EXPECT_EQ(tuned.at(layers, r).logprob, plain.at(layers, r).logprob) << "the prediction itself";
}

INSTANTIATE_TEST_SUITE_P(Golden, TunedLensGolden, testing::Values("gpt2_a", "llama", "gemma2"),
                         [](const auto& test) { return test.param; });

TEST(TunedLensGoldenTraining, TenSteps) {
  const Checkpoint file = open_safetensors(golden_lens("train.safetensors"));
  Engine engine(Golden::open("gpt2_a").model(), kPlain);
  const GoldenTensor ids = golden_tensor(file, "ids"), kl = golden_tensor(file, "kl");
  const auto steps = static_cast<size_t>(ids.shape[0]), sequences = static_cast<size_t>(ids.shape[1]),
             n = static_cast<size_t>(ids.shape[2]);
  LensTrainer trainer(engine, {.beta2 = 0.999, .weight_decay = 0});
  const double lr = std::stod(file.metadata().at("lr"));
  const std::vector<int32_t> all = ids_in(ids);
  for (size_t step = 0; step < steps; ++step) {
    std::vector<std::vector<int32_t>> contexts;
    for (size_t s = 0; s < sequences; ++s) {
      const auto from = all.begin() + static_cast<ptrdiff_t>((step * sequences + s) * n);
      contexts.emplace_back(from, from + static_cast<ptrdiff_t>(n));
    }
    const std::vector<double> before = trainer.step(contexts, lr);
    for (size_t layer = 0; layer < before.size(); ++layer) {
      const auto want = static_cast<double>(kl.values[step * before.size() + layer]);
      EXPECT_NEAR(before[layer], want, 1e-4 * want) << step << " " << layer;
    }
  }
  const TunedLens lens = trainer.lens();
  const auto same = [&](const FloatVector& got, const std::string& name) {
    const GoldenTensor want = golden_tensor(file, name);
    double largest = 0;
    for (const float x : want) largest = std::max(largest, std::abs(static_cast<double>(x)));
    EXPECT_CLOSE(std::vector<float>(got.begin(), got.end()), std::vector<float>(want.begin(), want.end()),
                 (Tolerance{.abs = 1e-4 * largest, .rel = 0}))
        << name;
  };
  for (size_t layer = 0; layer < lens.translators.size(); ++layer) {
    same(lens.translators[layer].A, std::to_string(layer) + ".weight");
    same(lens.translators[layer].b, std::to_string(layer) + ".bias");
  }
}

/// Documents of ids that follow a rule.
class SomeDocuments final : public DocumentTokens {
 public:
  explicit SomeDocuments(int32_t n) : n_(n) {}
  bool next(std::vector<int32_t>& ids, bool& begins) override {
    if (at_ == n_) return false;
    begins = true;
    ids.clear();
    for (int32_t i = 0; i < 9 + at_ % 4; ++i) ids.push_back((at_ * 37 + i * i * 5 + i) % 500);
    ++at_;
    return true;
  }
  double share() const override { return 0; }

 private:
  int32_t n_, at_ = 0;
};

TrainedLens trained(int threads, uint64_t seed) {
  Engine engine(Golden::open("llama").model(), {threads, {}});
  SomeDocuments documents(20);
  return train_lens(engine, documents, {.steps = 7, .batch = 5, .context = 11, .held_out = 4, .seed = seed});
}

TEST(LensTrain, SameBitsForAnyNumberOfThreads) {
  const TrainedLens one = trained(1, 3), two = trained(2, 3), other = trained(2, 4);
  for (size_t layer = 0; layer < one.lens.translators.size(); ++layer) {
    EXPECT_EQ(one.lens.translators[layer].A, two.lens.translators[layer].A);
    EXPECT_EQ(one.lens.translators[layer].b, two.lens.translators[layer].b);
    EXPECT_NE(one.lens.translators[layer].A, other.lens.translators[layer].A) << "another seed draws other contexts";
    EXPECT_EQ(one.kl[layer].tuned, two.kl[layer].tuned);
  }
  EXPECT_EQ(one.held_out_tokens, two.held_out_tokens);
}

TEST(LensTrain, LowersTheHeldOutKlOfEveryLayer) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", {2, {}});
  const auto documents =
      text_tokens(engine.tokenizer(), {std::string(VITRINE_SOURCE) + "/examples/fables.txt"}, {.separator = "\n\n\n"});
  const TrainedLens made = train_lens(engine, *documents, {.steps = 12, .batch = 4, .context = 64, .held_out = 8});
  ASSERT_EQ(made.kl.size(), 8u);
  for (size_t layer = 0; layer < made.kl.size(); ++layer) {
    EXPECT_EQ(made.kl[layer].point, "blocks." + std::to_string(layer) + ".hook_resid_pre");
    EXPECT_LT(made.kl[layer].tuned, made.kl[layer].logit) << layer;
  }
  // The KL of the picture is the same one: of one context, by another way.
  Engine plainly(std::string(VITRINE_SOURCE) + "/models/tales9m", kPlain);
  const std::vector<std::vector<int32_t>> one = {engine.prompt_ids("The fox and the crow")};
  const std::vector<LensKl> mean = lens_kl(plainly, made.lens, one);
  const LogitLens plain = logit_lens(plainly, one[0], {}, 1), tuned = logit_lens(plainly, one[0], {}, 1, 0, nullptr, &made.lens);
  for (size_t layer = 0; layer < mean.size(); ++layer) {
    double sums[2] = {};
    for (size_t r = 0; r < one[0].size(); ++r) sums[0] += plain.at(layer, r).kl, sums[1] += tuned.at(layer, r).kl;
    const auto n = static_cast<double>(one[0].size());
    EXPECT_NEAR(mean[layer].logit, sums[0] / n, 1e-4 * (1 + sums[0] / n));
    EXPECT_NEAR(mean[layer].tuned, sums[1] / n, 1e-4 * (1 + sums[1] / n));
  }
}

TEST(LensTrain, EndsWhenItIsTold) {
  Engine engine(Golden::open("llama").model(), kPlain);
  SomeDocuments documents(20);
  const TrainedLens made = train_lens(engine, documents, {.steps = 100, .batch = 2, .context = 11, .held_out = 4},
                                      [](const LensProgress& p) { return p.step < 3; });
  EXPECT_EQ(made.steps, 3);
  EXPECT_EQ(made.kl.size(), 3u);
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
#define EXPECT_SAYS(words, ...) \
  EXPECT_NE(message_of([&] { __VA_ARGS__; }).find(words), std::string::npos) << message_of([&] { __VA_ARGS__; })

TEST(LensTrain, RefusesWhatCannotBe) {
  Engine engine(Golden::open("llama").model(), kPlain);
  SomeDocuments few(4), some(20);
  EXPECT_SAYS("4 contexts of up to 64 tokens, and 4 are held out", train_lens(engine, few, {.context = 64, .held_out = 4}));
  EXPECT_SAYS("a context of 4096 tokens is longer", train_lens(engine, some, {.context = 4096}));
  EXPECT_SAYS("is no number", train_lens(engine, some, {.steps = 40, .batch = 2, .held_out = 4, .lr = INFINITY}));
}

TEST(TunedLensFile, ReadsWhatItWrote) {
  const Scratch scratch;
  Engine engine(Golden::open("llama").model(), kPlain);
  const TunedLens lens = trained(2, 1).lens;
  write_tuned_lens(scratch / "lens.safetensors", lens, DType::f32, {{"steps", "7"}});
  const auto read = open_tuned_lens(scratch / "lens.safetensors", engine);
  EXPECT_EQ(read->model, lens.model);
  EXPECT_EQ(read->fingerprint, lens.fingerprint);
  EXPECT_TRUE(trained_on(*read, engine));
  for (size_t layer = 0; layer < lens.translators.size(); ++layer) {
    EXPECT_EQ(read->translators[layer].A, lens.translators[layer].A);
    EXPECT_EQ(read->translators[layer].b, lens.translators[layer].b);
  }
  write_tuned_lens(scratch / "half.safetensors", lens, DType::f16);
  const TunedLens half = read_tuned_lens(scratch / "half.safetensors");
  for (size_t i = 0; i < lens.translators[1].A.size(); ++i)
    EXPECT_NEAR(half.translators[1].A[i], lens.translators[1].A[i], 1e-3 * std::abs(lens.translators[1].A[i]) + 1e-7);
  const TunedLens packages = read_tuned_lens(golden_lens("llama.safetensors"));  // says nothing about its model
  EXPECT_EQ(packages.model, "");
  EXPECT_TRUE(trained_on(packages, engine));
  TunedLens other = *read;
  other.fingerprint = "0123456789abcdef";
  EXPECT_FALSE(trained_on(other, engine));
}

TEST(TunedLensFile, RefusesOthers) {
  const Scratch scratch;
  Engine llama(Golden::open("llama").model(), kPlain), gpt2(Golden::open("gpt2_a").model(), kPlain);
  EXPECT_SAYS("is a tuned lens of a model with 3 layers of width 64; " + gpt2.name() + " has 3 layers of width 48. Train one",
              open_tuned_lens(golden_lens("llama.safetensors"), gpt2));
  EXPECT_SAYS("no tensor \"0.weight\"; expected a tuned lens",
              read_tuned_lens(Golden::open("llama").model() + "/model.safetensors"));
  const std::vector<float> numbers(16);
  const TensorToWrite weight{"0.weight", DType::f32, {4, 4}, numbers.data()}, bias{"0.bias", DType::f32, {4}, numbers.data()},
      wide{"1.weight", DType::f32, {2, 8}, numbers.data()}, other{"norm", DType::f32, {4}, numbers.data()};
  const std::string path = scratch / "lens.safetensors";
  write_safetensors(path, {weight});
  EXPECT_SAYS("no tensor \"0.bias\"", read_tuned_lens(path));
  write_safetensors(path, {weight, bias, wide});
  EXPECT_SAYS("\"1.weight\" is [2, 8]; expected [4, 4]", read_tuned_lens(path));
  write_safetensors(path, {weight, bias, other});
  EXPECT_SAYS("holds 3 tensors; expected a weight and a bias of each of 1 layer, and nothing else", read_tuned_lens(path));
  TunedLens large{.d_model = 1, .translators = {{FloatVector{1e6f}, FloatVector{0.0f}}}};
  EXPECT_SAYS("which f16 cannot", write_tuned_lens(scratch / "large.safetensors", large, DType::f16));
  EXPECT_FALSE(std::filesystem::exists(scratch / "large.safetensors"));
}

}  // namespace
}  // namespace vitrine
