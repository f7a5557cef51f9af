// Norms, RoPE, activations, softmax and their kin: each target against the double reference, at every tail length.
#include "kernels/reference/activation.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/rope.h"
#include "kernels/reference/softmax.h"
#include "support.h"

namespace vitrine {
namespace {

constexpr double kEps = std::numeric_limits<float>::epsilon();
using ElementwiseTest = EveryTarget;
constexpr Activation kElementwiseActivations[] = {Activation::none,         Activation::relu,       Activation::gelu_tanh,
                                                  Activation::gelu_exact,   Activation::silu,       Activation::sigmoid,
                                                  Activation::relu_squared, Activation::quick_gelu, Activation::tanh};

TEST_P(ElementwiseTest, RmsNorm) {
  for (const size_t d : lengths()) {
    if (d == 0) continue;
    const Guarded<float> x(random_values(d, 1)), w(random_values(d, 2));
    for (const bool weighted : {true, false}) {
      std::vector<double> want(d);
      const auto xd = as_double(x.values()), wd = as_double(w.values());
      double want_r;
      rms_norm_reference(xd.data(), weighted ? wd.data() : nullptr, 1.0, 1e-6, d, want.data(), &want_r);
      Guarded<float> y(d);
      float r;
      table->rms_norm(x.data(), weighted ? w.data() : nullptr, 1.0f, 1e-6f, d, y.data(), &r);
      EXPECT_TRUE(close(r, want_r, 16 * kEps * want_r)) << d;
      for (size_t i = 0; i < d; ++i) ASSERT_TRUE(close(y[i], want[i], 32 * kEps * std::fabs(want[i]) + 1e-7)) << d << " " << i;
      EXPECT_TRUE(y.intact());
      Guarded<float> in_place(x.values());
      table->rms_norm(in_place.data(), weighted ? w.data() : nullptr, 1.0f, 1e-6f, d, in_place.data(), nullptr);
      EXPECT_TRUE(same_bits(in_place.data(), y.data(), d));
    }
  }
}

TEST_P(ElementwiseTest, RmsNormStaysFiniteForLargeF16Inputs) {
  for (const float value : {257.0f, 65504.0f}) {
    const std::vector<float> x(2304, value);
    std::vector<float> y(x.size());
    table->rms_norm(x.data(), nullptr, 0.0f, 1e-6f, x.size(), y.data(), nullptr);
    for (const float v : y) ASSERT_NEAR(v, 1.0f, 1e-5f);
  }
}

TEST_P(ElementwiseTest, LayerNorm) {
  for (const size_t d : lengths()) {
    if (d == 0) continue;
    std::vector<float> shifted = random_values(d, 3);
    for (float& v : shifted) v += 5.0f;  // a mean that E[x^2] - mean^2 would lose digits to
    const Guarded<float> x(shifted), w(random_values(d, 4)), b(random_values(d, 5));
    for (const int form : {0, 1, 2}) {  // weight and bias, weight alone, neither
      const auto xd = as_double(shifted), wd = as_double(w.values()), bd = as_double(b.values());
      std::vector<double> want(d);
      double want_mean, want_s;
      layer_norm_reference(xd.data(), form < 2 ? wd.data() : nullptr, form < 1 ? bd.data() : nullptr, 1e-5, d, want.data(),
                           &want_mean, &want_s);
      Guarded<float> y(d);
      float mean, s;
      table->layer_norm(x.data(), form < 2 ? w.data() : nullptr, form < 1 ? b.data() : nullptr, 1e-5f, d, y.data(), &mean, &s);
      EXPECT_NEAR(mean, want_mean, 4e-6) << d;
      EXPECT_NEAR(s, want_s, (d == 1 ? 1e-3 : 2e-5) * want_s) << d;
      for (size_t i = 0; i < d; ++i) ASSERT_NEAR(y[i], want[i], 2e-5 * (1 + std::fabs(want[i]))) << d << " " << i;
      EXPECT_TRUE(y.intact());
    }
  }
}

TEST_P(ElementwiseTest, RopeTurnsBothLayouts) {
  for (const RopeLayout layout : {RopeLayout::halves, RopeLayout::pairs})
    for (const size_t rotary : {2, 4, 6, 14, 16, 30, 32, 34, 64, 66, 128, 256})
      for (const size_t extra : {0, 5}) {
        const size_t heads = 3, head_dim = rotary + extra;
        const Guarded<float> x(random_values(heads * head_dim, 6));
        std::vector<float> cosines(rotary / 2), sines(rotary / 2);
        for (size_t i = 0; i < rotary / 2; ++i) {
          cosines[i] = std::cos(0.3f * float(i + 1));
          sines[i] = std::sin(0.3f * float(i + 1));
        }
        const Guarded<float> cos(cosines), sin(sines);
        const auto xd = as_double(x.values()), cd = as_double(cosines), sd = as_double(sines);
        std::vector<double> want(x.size());
        rope_reference(xd.data(), cd.data(), sd.data(), layout, heads, head_dim, rotary, want.data());
        Guarded<float> y(x.size());
        table->rope(x.data(), cos.data(), sin.data(), layout, heads, head_dim, rotary, y.data());
        for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(y[i], want[i], 1e-6) << rotary << " " << i;
        for (size_t h = 0; h < heads; ++h)  // components that do not turn keep their bits
          EXPECT_TRUE(same_bits(y.data() + h * head_dim + rotary, x.data() + h * head_dim + rotary, extra));
        Guarded<float> in_place(x.values());
        table->rope(in_place.data(), cos.data(), sin.data(), layout, heads, head_dim, rotary, in_place.data());
        EXPECT_TRUE(same_bits(in_place.data(), y.data(), y.size()));
        EXPECT_TRUE(y.intact());
      }
}

/// Values from tiny to huge, of both signs, with the border cases.
std::vector<float> wide_values() {
  std::vector<float> values = {0.0f,       -0.0f, 1e-38f, -1e-38f, 1e-42f,  0.625f, -0.625f, 1.0f,  -1.0f,
                               1.4142135f, 87.4f, 88.7f,  100.0f,  -100.0f, 1e10f,  -1e10f,  3e38f, -3e38f};
  for (float v = 1e-6f; v < 60.0f; v *= 1.003f) {
    values.push_back(v);
    values.push_back(-v);
  }
  return values;
}

TEST_P(ElementwiseTest, ActivationsAreAccurateEverywhere) {
  const std::vector<float> values = wide_values();
  const Guarded<float> x(values);
  for (const Activation f : kElementwiseActivations) {
    Guarded<float> y(values.size());
    const double underflow = f == Activation::quick_gelu ? 2.5e-37 : 1e-37;  // 1.702 x meets the x where e^-x is beyond f32
    table->activate(f, x.data(), values.size(), y.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const double want = activation_value(f, double(values[i]));
      if (want > double(std::numeric_limits<float>::max())) {  // a square
        ASSERT_TRUE(std::isinf(y[i])) << values[i];
        continue;
      }
      // How far a relative error of the argument is carried into the result.
      const double condition = want == 0 ? 0 : std::fabs(double(values[i]) * activation_derivative(f, double(values[i])) / want);
      ASSERT_TRUE(close(y[i], want, (4 + 2 * condition) * kEps * std::fabs(want) + underflow))
          << int(f) << " f(" << values[i] << ") = " << y[i] << ", not " << want;
    }
    EXPECT_TRUE(y.intact());
  }
}

TEST_P(ElementwiseTest, ActivationsKeepNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Activation f : kElementwiseActivations) {
    std::vector<float> x(40, nan), y(40);
    table->activate(f, x.data(), x.size(), y.data());
    for (const float v : y) EXPECT_TRUE(std::isnan(v)) << int(f);
  }
}

TEST_P(ElementwiseTest, TailsOfActivateGateAddScale) {
  for (const size_t n : lengths()) {
    const Guarded<float> a(random_values(n, 7)), b(random_values(n, 8));
    Guarded<float> y(n);
    for (const Activation f : kElementwiseActivations) {
      table->activate(f, a.data(), n, y.data());
      for (size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], activation_value(f, double(a[i])), 2e-6);
      table->gate(f, a.data(), b.data(), n, y.data());
      for (size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], activation_value(f, double(a[i])) * double(b[i]), 4e-6);
    }
    table->add(a.data(), b.data(), n, y.data());
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(y[i], a[i] + b[i]);
    table->scale(a.data(), 0.3f, n, y.data());
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(y[i], a[i] * 0.3f);
    EXPECT_TRUE(y.intact());
  }
}

TEST_P(ElementwiseTest, Softcap) {
  const std::vector<float> values = wide_values();
  for (const float cap : {1.0f, 30.0f, 50.0f}) {
    const Guarded<float> x(values);
    Guarded<float> y(values.size());
    table->softcap(x.data(), cap, values.size(), y.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const double want = double(cap) * std::tanh(double(values[i]) / double(cap));
      ASSERT_TRUE(close(y[i], want, 5e-7 * std::fabs(want) + 1e-37)) << values[i] << " -> " << y[i] << ", not " << want;
      ASSERT_LE(std::fabs(y[i]), cap);
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  float ends[3] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()};
  table->softcap(ends, 30.0f, 3, ends);
  EXPECT_EQ(ends[0], 30.0f);
  EXPECT_EQ(ends[1], -30.0f);
  EXPECT_TRUE(std::isnan(ends[2]));
}

TEST_P(ElementwiseTest, SoftmaxAndLogSumExp) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const size_t n : lengths()) {
    for (const bool masked : {false, true}) {
      std::vector<float> values = random_values(n, 9, 6.0f);
      if (masked)
        for (size_t i = 0; i < n; i += 3) values[i] = -infinity;
      const Guarded<float> x(values);
      const auto xd = as_double(values);
      const double top = largest_of(xd.data(), n);
      std::vector<double> want(n);
      softmax_reference(xd.data(), n, want.data());
      Guarded<float> y(n);
      table->softmax(x.data(), n, y.data());
      for (size_t i = 0; i < n; ++i) {  // rounding of the sum, and of x - top carried into exp(x - top)
        const double relative = want[i] > 0 ? kEps * (top - xd[i]) : 0;
        ASSERT_NEAR(y[i], want[i], relative * want[i] + sum_tolerance(n, want[i])) << n << " " << i;
      }
      EXPECT_TRUE(y.intact());
      Guarded<float> in_place(values);
      table->softmax(in_place.data(), n, in_place.data());
      EXPECT_TRUE(same_bits(in_place.data(), y.data(), n));
      const double lse = log_sum_exp_reference(xd.data(), n);
      EXPECT_TRUE(close(table->log_sum_exp(x.data(), n), lse, 2e-6 * (1 + std::fabs(lse)))) << n;
    }
    std::vector<float> none(n, -infinity), y(n, 1.0f);
    table->softmax(none.data(), n, y.data());
    for (const float v : y) EXPECT_EQ(v, 0.0f);
    EXPECT_EQ(table->log_sum_exp(none.data(), n), -infinity);
    table->pattern(none.data(), 0, n, n, 0.5f, 0.0f);
    for (const float v : none) EXPECT_EQ(v, 0.0f);
  }
}

TEST_P(ElementwiseTest, SoftmaxShowsNaN) {
  for (const size_t n : {1, 5, 16, 40, 100})
    for (const float rest : {0.0f, -std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(n, rest), y(n);
      x[n / 2] = std::numeric_limits<float>::quiet_NaN();
      table->softmax(x.data(), n, y.data());
      EXPECT_TRUE(std::isnan(y[n / 2]));
      EXPECT_TRUE(std::isnan(table->log_sum_exp(x.data(), n)));
      for (const float cap : {0.0f, 50.0f}) {
        std::vector<float> s = x;
        table->pattern(s.data(), 0, n, n, 0.5f, cap);
        EXPECT_TRUE(std::isnan(s[n / 2])) << cap;
      }
    }
}

TEST_P(ElementwiseTest, WidenIsExact) {
  for (const DType type : kAllWeightTypes)
    for (const size_t n : lengths()) {
      if (n % block_elements(type) != 0) continue;
      const Guarded<char> row(random_weights(type, 1, n, 10));
      Guarded<float> y(n);
      table->widen[int(type)](row.data(), n, y.data());
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(y[i], element_at(type, row.data(), i)) << name_of(type) << " " << n << " " << i;
      EXPECT_TRUE(y.intact());
    }
}

TEST_P(ElementwiseTest, WidenReadsEveryHalfPrecisionValue) {
  for (const DType type : {DType::f16, DType::bf16}) {
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); ++i) all[i] = uint16_t(i);
    std::vector<float> y(all.size());
    table->widen[int(type)](all.data(), all.size(), y.data());
    for (size_t i = 0; i < all.size(); ++i) {
      const float want = element_at(type, all.data(), i);
      ASSERT_TRUE(std::isnan(want) ? std::isnan(y[i]) : same_bits(&want, &y[i], 1)) << i;
    }
  }
}

TEST_P(ElementwiseTest, NarrowRoundsToTheNearestBf16) {
  for (const size_t n : lengths()) {
    std::vector<float> x = random_values(n, 11);
    constexpr float kOdd[] = {1.00390625f, 1.01171875f, -3.4e38f, 1e-40f, -0.0f, std::numeric_limits<float>::infinity(), NAN};
    for (size_t i = 0; i < std::min(n, std::size(kOdd)); ++i) x[n - 1 - i] = kOdd[i];
    const Guarded<float> from(x);
    Guarded<uint16_t> y(n);
    table->narrow(from.data(), n, y.data());
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(y[i], f32_to_bf16(x[i])) << n << " " << i << " " << x[i];
    EXPECT_TRUE(y.intact());
  }
}

TEST_P(ElementwiseTest, QuantizeInt8EqualsTheDefinition) {
  for (const size_t n : {32, 64, 288, 2304}) {
    std::vector<float> values = random_values(n, 11, 3.0f);
    values[3] = 127.0f, values[4] = 0.5f, values[5] = 1.5f, values[6] = 2.5f, values[7] = -0.5f;  // ties, with scale 1
    const Guarded<float> x(values);
    Guarded<ActivationBlock> y(activation_blocks(n));
    std::vector<ActivationBlock> want(activation_blocks(n));
    quantize_int8_reference(x.data(), n, want.data());
    table->quantize_int8(x.data(), n, y.data());
    EXPECT_EQ(std::memcmp(want.data(), y.data(), want.size() * sizeof(ActivationBlock)), 0) << n;
    EXPECT_EQ(want[0].q[4], 0);
    EXPECT_EQ(want[0].q[5], 2);
    EXPECT_EQ(want[0].q[6], 2);
    EXPECT_TRUE(y.intact());
  }
}

TEST_P(ElementwiseTest, QuantizeInt8MarksNaNAndKeepsZero) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const size_t at : {0, 17, 31}) {
      std::vector<float> x(64, 1.0f);
      x[at] = bad;
      ActivationBlock y;
      table->quantize_int8(x.data(), 64, &y);
      EXPECT_TRUE(std::isnan(y.scale[0]));
      EXPECT_TRUE(std::isnan(y.sum[0]) && std::isnan(y.sum[1]));
      EXPECT_FLOAT_EQ(y.scale[1], 1.0f / 127);
      EXPECT_FLOAT_EQ(y.sum[2], 16);
      EXPECT_FLOAT_EQ(y.sum[3], 16);
    }
  for (const float tiny : {0.0f, 1e-31f, 1e-42f}) {
    const std::vector<float> x(32, tiny);
    ActivationBlock y;
    table->quantize_int8(x.data(), 32, &y);
    EXPECT_EQ(y.scale[0], 0.0f);
    EXPECT_EQ(y.sum[0], 0);
  }
}

VITRINE_FOR_EVERY_TARGET(ElementwiseTest);

}  // namespace
}  // namespace vitrine
