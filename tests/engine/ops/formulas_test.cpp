// Single formulas: against PyTorch in float64 (tests/golden/formulas), numbers one can check by hand, and laws of positions,
// norms and attention.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "base/json.h"
#include "gradients.h"
#include "io/safetensors.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/norm.h"
#include "ops/recorder.h"
#include "ops/rope.h"
#include "support/close.h"

namespace vitrine {
namespace {

// A context in double or f32, and tensors of given numbers.
struct Bench {
  explicit Bench(DType type) { ctx.activations = type; }
  Tensor tensor(const Shape& shape, const std::vector<double>& numbers) {
    const Tensor t = ctx.empty(shape);
    visit_scalar(t, [&](auto zero) {
      using T = decltype(zero);
      for (size_t i = 0; i < numbers.size(); ++i) t.data<T>()[i] = static_cast<T>(numbers[i]);
    });
    return t;
  }
  static std::vector<double> numbers(const Tensor& t) {
    std::vector<double> result;
    visit_scalar(t, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t i = 0; i < t.count(); ++i) result.push_back(static_cast<double>(t.data<T>()[i]));
    });
    return result;
  }
  ThreadPool pool{2};
  Context ctx{pool};
};

Vector values_of(const std::vector<double>& numbers) {
  Vector v;
  v.name = "w";
  v.data = numbers.data();
  v.dtype = DType::f64;
  v.size = static_cast<int64_t>(numbers.size());
  return v;
}

Step positions_from_zero(int64_t n) { return Step::of(std::vector<int32_t>(static_cast<size_t>(n), 0)); }

RopeSpec rope_spec(int64_t d, RopeLayout layout = RopeLayout::halves) {
  RopeSpec spec;
  spec.rotary_dim = d;
  spec.layout = layout;
  return spec;
}

class Formula : public testing::TestWithParam<DType> {
 protected:
  std::vector<double> golden(const std::string& name) const {
    const StoredTensor* t = file_.find("blocks/" + name);
    if (t == nullptr) throw std::out_of_range(name);
    const auto* data = reinterpret_cast<const double*>(t->data);
    return {data, data + t->bytes / sizeof(double)};
  }
  void expect(const Tensor& got, const std::string& name, double angles = 0) {
    const double abs = GetParam() == DType::f64 ? 1e-13 : 2e-6;
    EXPECT_CLOSE(Bench::numbers(got), golden(name), (Tolerance{.abs = std::max(abs, angles), .rel = abs})) << name;
  }
  Checkpoint file_ = open_safetensors(std::string(VITRINE_GOLDEN) + "/formulas/blocks.safetensors");
  Bench bench_{GetParam()};
};

TEST_P(Formula, NormsAndActivations) {
  Context& ctx = bench_.ctx;
  const Tensor x = bench_.tensor({3, 10}, golden("x"));
  const std::vector<double> w = golden("w"), b = golden("b");
  std::vector<double> gemma = w;
  for (double& value : gemma) value -= 1;
  expect(layer_norm(ctx, "n", x, values_of(w), values_of(b), {.eps = 1e-5}), "layer_norm_eps1e-5");
  expect(rms_norm(ctx, "n", x, values_of(w), {.eps = 1e-6}), "rms_norm_eps1e-6");
  expect(rms_norm(ctx, "n", x, values_of(gemma), {.eps = 1e-6, .offset = 1}), "rms_norm_gemma_eps1e-6");
  expect(activation(ctx, x, Activation::gelu_exact), "gelu_exact");
  expect(activation(ctx, x, Activation::gelu_tanh), "gelu_tanh");
  expect(activation(ctx, x, Activation::silu), "silu");
  expect(activation(ctx, x, Activation::relu_squared), "relu2");
  expect(activation(ctx, x, Activation::quick_gelu), "quick_gelu");
  expect(activation(ctx, x, Activation::tanh), "tanh");
  expect(softcap(ctx, x, 30), "softcap30");
}

TEST_P(Formula, Positions) {
  Context& ctx = bench_.ctx;
  const Step step = positions_from_zero(40);
  const Tensor q = bench_.tensor({40, 1, 16}, golden("rope_q"));
  // Angles are f32 whatever the activations are: at position 39 half a unit in the last place is 2e-6.
  expect(rope(ctx, q, step, rope_spec(16)), "rope_half_split", 1e-5);
  expect(rope(ctx, q, step, rope_spec(16, RopeLayout::pairs)), "rope_interleaved", 1e-5);
  expect(sinusoidal_positions(ctx, step, 16, SinusoidLayout::pairs), "sinusoidal_positions_interleaved");
  const std::vector<float> frequencies = rope_frequencies(rope_spec(16));
  std::vector<double> wavelengths;
  for (const float f : frequencies) wavelengths.push_back(2 * std::numbers::pi / static_cast<double>(f));
  EXPECT_CLOSE(wavelengths, golden("rope_wavelengths_dim16"), (Tolerance{.abs = 0, .rel = 3e-7}));
}

INSTANTIATE_TEST_SUITE_P(Every, Formula, testing::Values(DType::f32, DType::f64),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST(ByHand, SoftmaxOfTwoScores) {
  Bench b(DType::f64);
  Recorder seen({{"attn.hook_pattern"}});
  b.ctx.listen(&seen);
  const Step step = positions_from_zero(2);
  b.ctx.enter(step);
  const Tensor q = b.tensor({2, 1, 1}, {1, 1}), k = b.tensor({2, 1, 1}, {0, -std::log(2.0)});
  attention(b.ctx, "attn", q, k, k, step, 0, {});
  EXPECT_CLOSE(seen.values().at("attn.hook_pattern").values, std::vector<double>{1, 0, 2.0 / 3, 1.0 / 3},
               (Tolerance{.abs = 1e-7, .rel = 0}));
}

TEST(ByHand, SoftCapOfTwo) {
  Bench b(DType::f64);
  const Tensor y = softcap(b.ctx, b.tensor({1, 4}, {0.5, 1, 2, 3}), 2);
  EXPECT_CLOSE(Bench::numbers(y), std::vector<double>{0.4898, 0.9242, 1.5232, 1.8103}, (Tolerance{.abs = 5e-5, .rel = 0}));
}

TEST(ByHand, LayerNormOfTwoFourSix) {
  Bench b(DType::f64);
  const std::vector<double> ones(3, 1), zeros(3, 0);
  const Tensor y = layer_norm(b.ctx, "n", b.tensor({1, 3}, {2, 4, 6}), values_of(ones), values_of(zeros), {.eps = 0});
  EXPECT_CLOSE(Bench::numbers(y), std::vector<double>{-1.2247, 0, 1.2247}, (Tolerance{.abs = 5e-5, .rel = 0}));
  const std::vector<double> one(2, 1), zero(2, 0);
  const Tensor z = layer_norm(b.ctx, "n", b.tensor({1, 2}, {1, 5}), values_of(one), values_of(zero), {.eps = 0});
  EXPECT_CLOSE(Bench::numbers(z), std::vector<double>{-1, 1}, (Tolerance{.abs = 1e-12, .rel = 0}));
}

TEST(ByHand, RopeFrequenciesOfAHeadOf256) {
  const std::vector<float> f = rope_frequencies(rope_spec(256));
  ASSERT_EQ(f.size(), 128u);
  EXPECT_NEAR(static_cast<double>(f[20]), 0.2371, 5e-5);
  const auto wavelength = [&](size_t i) { return 2 * std::numbers::pi / static_cast<double>(f[i]); };
  EXPECT_NEAR(wavelength(0), 6.283, 5e-4);
  EXPECT_NEAR(wavelength(127), 58470, 0.5);
  size_t first = 0;
  while (wavelength(first) <= 8192) ++first;
  EXPECT_EQ(first, 100u);
}

// Positions are multiplied by these numbers, so a unit in their last place grows with the text.
TEST(Reference, RopeFrequenciesOfLlama3) {
  for (const Json& gold : read_json(std::string(VITRINE_GOLDEN) + "/formulas/rope_llama3.json")) {
    RopeSpec spec = rope_spec(gold["dim"]);
    spec.theta = gold["theta"];
    spec.scaling = RopeSpec::Scaling::llama3;
    spec.factor = gold["factor"];
    spec.low_freq_factor = gold["low_freq_factor"];
    spec.high_freq_factor = gold["high_freq_factor"];
    spec.original_context = gold["original_context"];
    const std::vector<float> f = rope_frequencies(spec);
    ASSERT_EQ(f.size(), gold["inv_freq"].size());
    for (size_t i = 0; i < f.size(); ++i) {
      const auto expected = gold["inv_freq"][i].get<float>();
      EXPECT_LE(std::abs(std::bit_cast<int32_t>(f[i]) - std::bit_cast<int32_t>(expected)), 1)
          << "dim " << gold["dim"] << ", frequency " << i << ": " << f[i] << " against " << expected;
    }
  }
}

void expect_last_bit(const std::vector<float>& f, const Json& expected, const std::string& what, int32_t units = 1) {
  ASSERT_EQ(f.size(), expected.size()) << what;
  for (size_t i = 0; i < f.size(); ++i) {
    const auto e = expected[i].get<float>();
    EXPECT_LE(std::abs(std::bit_cast<int32_t>(f[i]) - std::bit_cast<int32_t>(e)), units)
        << what << ", frequency " << i << ": " << f[i] << " against " << e;
  }
}

TEST(Reference, RopeFrequenciesOfYarn) {
  for (const Json& gold : read_json(std::string(VITRINE_GOLDEN) + "/formulas/rope_yarn.json")) {
    RopeSpec spec = rope_spec(gold["dim"]);
    spec.theta = gold["theta"];
    spec.scaling = RopeSpec::Scaling::yarn;
    spec.factor = gold["factor"];
    spec.original_context = gold["original_context"];
    spec.beta_fast = gold["beta_fast"];
    spec.beta_slow = gold["beta_slow"];
    spec.truncate = gold["truncate"];
    expect_last_bit(rope_frequencies(spec), gold["inv_freq"], "dim " + gold["dim"].dump());
  }
}

// A sequence of as many tokens as the original context turns by the short factors, a longer one by the long ones.
TEST(Reference, RopeFrequenciesOfLongRope) {
  for (const Json& gold : read_json(std::string(VITRINE_GOLDEN) + "/formulas/rope_longrope.json")) {
    const auto few = gold["short"].get<std::vector<float>>(), many = gold["long"].get<std::vector<float>>();
    RopeSpec spec = rope_spec(gold["dim"]);
    spec.theta = gold["theta"];
    spec.scaling = RopeSpec::Scaling::longrope;
    spec.original_context = gold["original_context"];
    spec.divisors = few.data();
    spec.long_divisors = many.data();
    const auto context = gold["original_context"].get<int64_t>();
    // Powers differ in the last bit between libraries; a product and a quotient come after it.
    expect_last_bit(rope_frequencies(spec), gold["inv_freq_short"], "short", 2);
    expect_last_bit(rope_frequencies(spec, context), gold["inv_freq_short"], "as long as the context", 2);
    expect_last_bit(rope_frequencies(spec, context + 1), gold["inv_freq_long"], "longer", 2);
  }
}

// Each sequence of a step goes by its own length, and the factor makes what turns longer, and nothing else.
TEST(Rope, GoesByTheLengthOfEachSequenceAndStretchesWhatTurns) {
  const std::vector<float> few = {1, 2}, many = {3, 8};
  RopeSpec spec = rope_spec(4);
  spec.scaling = RopeSpec::Scaling::longrope;
  spec.original_context = 3;
  spec.attention_factor = 1.5;
  spec.divisors = few.data();
  spec.long_divisors = many.data();
  Bench b(DType::f64);
  const std::vector<int32_t> tokens(9, 0);
  Step step;
  for (const size_t n : {3, 4, 2}) step.add(std::span(tokens).first(n));
  const std::vector<double> x = noise(9 * 6, 1);
  const Tensor y = rope(b.ctx, b.tensor({9, 1, 6}, x), step, spec);
  for (int64_t r = 0; r < 9; ++r) {
    const bool is_long = r >= 3 && r < 7;
    const auto position = static_cast<double>(r < 3 ? r : r < 7 ? r - 3 : r - 7);
    const double* in = x.data() + r * 6;
    const double* out = y.row<double>(r);
    for (int i = 0; i < 2; ++i) {
      const double angle =
          position / static_cast<double>((is_long ? many : few)[static_cast<size_t>(i)]) / std::pow(spec.theta, i / 2.0);
      EXPECT_NEAR(out[i], 1.5 * (in[i] * std::cos(angle) - in[i + 2] * std::sin(angle)), 1e-6) << r;
      EXPECT_NEAR(out[i + 2], 1.5 * (in[i + 2] * std::cos(angle) + in[i] * std::sin(angle)), 1e-6) << r;
    }
    EXPECT_EQ(out[4], in[4]);
    EXPECT_EQ(out[5], in[5]);
  }
}

// Eighteen layers that each add twice what they read: without norms the stream triples, with them it grows by two.
TEST(ByHand, EighteenLayersWithAndWithoutNorms) {
  const std::vector<double> one = {1};
  for (const bool norms : {false, true}) {
    Bench b(DType::f64);
    Tensor x = b.tensor({1, 1}, {1});
    for (int layer = 0; layer < 18; ++layer)
      x = add(b.ctx, x, scale(b.ctx, norms ? rms_norm(b.ctx, "n", x, values_of(one), {.eps = 0}) : x, 2));
    EXPECT_DOUBLE_EQ(*x.data<double>(), norms ? 37 : 387420489);
  }
}

TEST(PositionLaws, RopeScoresDependOnTheOffsetAlone) {
  constexpr int64_t kRows = 60, kDim = 12;
  for (const RopeLayout layout : {RopeLayout::halves, RopeLayout::pairs}) {
    Bench b(DType::f64);
    const std::vector<double> q = noise(kDim, 1), k = noise(kDim, 2);
    std::vector<double> qs, ks;
    for (int64_t r = 0; r < kRows; ++r) qs.insert(qs.end(), q.begin(), q.end()), ks.insert(ks.end(), k.begin(), k.end());
    const Step step = positions_from_zero(kRows);
    const Tensor tq = rope(b.ctx, b.tensor({kRows, 1, kDim}, qs), step, rope_spec(kDim, layout)),
                 tk = rope(b.ctx, b.tensor({kRows, 1, kDim}, ks), step, rope_spec(kDim, layout));
    const auto score = [&](int64_t m, int64_t n) {
      double s = 0;
      for (int64_t c = 0; c < kDim; ++c) s += tq.row<double>(m)[c] * tk.row<double>(n)[c];
      return s;
    };
    for (int64_t offset = 0; offset < 20; ++offset)
      for (int64_t n = 1; n + offset < kRows; ++n) EXPECT_NEAR(score(n + offset, n), score(offset, 0), 5e-5);
    EXPECT_GT(std::abs(score(5, 0) - score(6, 0)), 1e-2);
  }
}

TEST(PositionLaws, OneLinearMapTakesASinusoidalPositionToTheNext) {
  constexpr int64_t kRows = 3000, kDim = 14;
  for (const SinusoidLayout layout : {SinusoidLayout::pairs, SinusoidLayout::halves}) {
    Bench b(DType::f64);
    const Tensor p = sinusoidal_positions(b.ctx, positions_from_zero(kRows), kDim, layout);
    for (int64_t i = 0; i < kDim / 2; ++i) {
      const int64_t sine = layout == SinusoidLayout::pairs ? 2 * i : i,
                    cosine = layout == SinusoidLayout::pairs ? 2 * i + 1 : i + kDim / 2;
      const auto at = [&](int64_t k, int64_t c) { return p.row<double>(k)[c]; };
      // Fitted on positions 0 and 1 alone, (s, c) -> (s·a + c·b, s·e + c·f); at 0 sine is 0 and cosine 1.
      const double m_b = at(1, sine), m_f = at(1, cosine), m_a = (at(2, sine) - at(1, cosine) * m_b) / at(1, sine),
                   m_e = (at(2, cosine) - at(1, cosine) * m_f) / at(1, sine);
      for (int64_t k = 2; k + 1 < kRows; ++k) {
        ASSERT_NEAR(at(k, sine) * m_a + at(k, cosine) * m_b, at(k + 1, sine), 1e-9) << "pair " << i << " position " << k;
        ASSERT_NEAR(at(k, sine) * m_e + at(k, cosine) * m_f, at(k + 1, cosine), 1e-9) << "pair " << i << " position " << k;
      }
    }
  }
}

// A table of 100 positions of width 64, read at [1, 9]: and with nine tokens in the cache the next row is the table's tenth.
TEST(PositionLaws, SinusoidalTablesHaveOneRowForEachTokenAndGoOnAfterTheCache) {
  Bench b(DType::f64);
  const Tensor table = sinusoidal_positions(b.ctx, positions_from_zero(100), 64, SinusoidLayout::pairs);
  EXPECT_EQ(table.shape(), (Shape{100, 64}));
  const Tensor nine = sinusoidal_positions(b.ctx, positions_from_zero(9), 64, SinusoidLayout::pairs);
  EXPECT_EQ(nine.shape(), (Shape{9, 64}));
  EXPECT_EQ(Bench::numbers(nine), Bench::numbers(table.rows_view(0, 9)));
  KvCache cache({{kNoWindow, 1, 2, 2}}, 100, 16);
  CacheSequence sequence = cache.sequence();
  const std::vector<int32_t> tokens(10, 0);
  Step first;
  first.add(std::span(tokens).first(9), &sequence);
  first.commit();
  Step next;
  next.add(std::span(tokens).first(1), &sequence);
  EXPECT_EQ(Bench::numbers(sinusoidal_positions(b.ctx, next, 64, SinusoidLayout::pairs)), Bench::numbers(table.rows_view(9, 1)));
}

TEST(AttentionLaws, PermutationCovariantWithoutMaskAndPositionsAndNotWithEither) {
  constexpr int64_t kRows = 7, kDim = 4;
  const std::vector<int64_t> order = {3, 0, 6, 1, 5, 2, 4};
  const std::vector<double> x = noise(kRows * kDim, 4);
  std::vector<double> shuffled;
  for (const int64_t r : order) shuffled.insert(shuffled.end(), x.begin() + r * kDim, x.begin() + (r + 1) * kDim);
  const Step step = positions_from_zero(kRows);
  const auto run = [&](const std::vector<double>& rows, bool masked, bool rotated) {
    Bench b(DType::f64);
    const Tensor t = b.tensor({kRows, 1, kDim}, rows), q = rotated ? rope(b.ctx, t, step, rope_spec(kDim)) : t;
    AttentionSpec spec;
    spec.causal = masked;
    return Bench::numbers(attention(b.ctx, "attn", q, q, t, step, 0, spec));
  };
  for (const auto& [masked, rotated] : {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
    const std::vector<double> z = run(x, masked, rotated), moved = run(shuffled, masked, rotated);
    double most = 0;
    for (size_t r = 0; r < order.size(); ++r)
      for (size_t c = 0; c < kDim; ++c)
        most = std::max(most, std::abs(moved[r * kDim + c] - z[static_cast<size_t>(order[r]) * kDim + c]));
    if (masked || rotated) {
      EXPECT_GT(most, 1e-2);
    } else {
      EXPECT_LT(most, 1e-12);
    }
  }
}

// In f16 the square of 256 is infinite. Sums are f32 whatever the weights are.
TEST(NormLaws, RmsNormStaysFiniteForF16InputsAbove256) {
  std::vector<uint16_t> stored;
  for (const float x : {257.0f, -1000.0f, 4096.0f, 65504.0f}) stored.push_back(f32_to_f16(x));
  Weight W_E;
  W_E.name = "W_E";
  W_E.dtype = DType::f16;
  W_E.out = 1;
  W_E.in = 4;
  W_E.stride = 8;
  W_E.data = reinterpret_cast<const std::byte*>(stored.data());
  Bench b(DType::f32);
  const std::vector<double> ones(4, 1);
  const std::vector<int32_t> token = {0};
  const Tensor y = rms_norm(b.ctx, "n", embed(b.ctx, token, W_E), values_of(ones), {.eps = 1e-6});
  const double rms = std::sqrt((257.0 * 257 + 1e6 + 4096.0 * 4096 + 65504.0 * 65504) / 4);
  EXPECT_CLOSE(Bench::numbers(y), std::vector<double>{257 / rms, -1000 / rms, 4096 / rms, 65504 / rms},
               (Tolerance{.abs = 0, .rel = 1e-6}));
}

// What a listener puts in a part's place is computed with as the fused form computes: with the same numbers the same bits.
class Copy final : public Listener {
 public:
  explicit Copy(std::string name) : name_(std::move(name)) {}
  bool wants(std::string_view name) const override { return name == name_; }
  Tensor see(Context&, std::string_view, const Tensor& value) override {
    numbers_.assign(value.data<float>(), value.data<float>() + value.count());
    return {numbers_.data(), DType::f32, value.shape()};
  }

 private:
  std::string name_;
  std::vector<float> numbers_;
};

TEST(NormLaws, PartsReplacedByTheirOwnNumbersChangeNoBit) {
  for (const int64_t d : {1, 7, 64, 301}) {
    const std::vector<double> x = noise(40 * d, 1), w = noise(d, 2), b = noise(d, 3);
    const auto y_of = [&](bool layer, Listener* listener) {
      Bench bench(DType::f32);
      const Step step = positions_from_zero(40);
      const Tensor rows = bench.tensor({40, d}, x);
      bench.ctx.listen(listener);
      bench.ctx.enter(step);
      return Bench::numbers(layer ? layer_norm(bench.ctx, "n", rows, values_of(w), values_of(b), {.eps = 1e-5})
                                  : rms_norm(bench.ctx, "n", rows, values_of(w), {.offset = 1}));
    };
    for (const bool layer : {false, true})
      for (const char* name : {"n.hook_scale", "n.hook_normalized_pre"}) {
        Copy copy(name);
        EXPECT_EQ(y_of(layer, &copy), y_of(layer, nullptr)) << name << " of " << d << (layer ? ", LayerNorm" : "");
      }
  }
}

}  // namespace
}  // namespace vitrine
