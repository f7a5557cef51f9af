// AdamW and gradient descent: each target against torch.optim (tests/golden/optimizers), at every tail length against the
// definition; the sum of squares.
#include "kernels/reference/optimizer.h"

#include "base/json.h"
#include "support.h"

namespace vitrine {
namespace {

using OptimizerTest = EveryTarget;

TEST_P(OptimizerTest, StepsEqualTorch) {
  for (const Json& c : read_json(VITRINE_GOLDEN "/optimizers/optimizers.json")) {
    const auto number = [&](const char* key) { return c.at(key).get<float>(); };
    std::vector<float> w = c.at("start").get<std::vector<float>>();
    std::vector<float> m(w.size()), v(w.size());
    const bool adamw = c.at("kind").get<std::string>() == "adamw";
    for (size_t step = 0; step < c.at("gradients").size(); ++step) {
      const auto g = c.at("gradients")[step].get<std::vector<float>>();
      const auto t = double(step + 1);
      if (adamw) {
        const auto bias = [&](const char* key) { return float(1 - std::pow(c.at(key).get<double>(), t)); };
        table->adamw(w.data(), g.data(), m.data(), v.data(), w.size(), number("lr"), number("beta1"), number("beta2"),
                     number("eps"), number("weight_decay"), bias("beta1"), bias("beta2"), number("grad_scale"));
      } else {
        table->sgd(w.data(), g.data(), number("factor") == 0 ? nullptr : m.data(), w.size(), number("lr"), number("factor"),
                   number("weight_decay"), number("grad_scale"));
      }
      const auto want = c.at("weights")[step].get<std::vector<float>>();
      // A subtraction may leave little of its operands: 1e-6 of the larger of the result and one.
      for (size_t i = 0; i < w.size(); ++i)
        ASSERT_NEAR(w[i], want[i], 1e-6 * std::max(1.0, std::fabs(double(want[i])))) << adamw << " step " << step << " " << i;
    }
  }
}

TEST_P(OptimizerTest, EveryTailEqualsTheDefinition) {
  for (const size_t n : lengths()) {
    const std::vector<float> w0 = random_values(n, 60), g0 = random_values(n, 61), m0 = random_values(n, 62);
    std::vector<float> v0 = random_values(n, 63);
    for (float& value : v0) value *= value;
    const auto expect = [&](const Guarded<float>& got, const std::vector<double>& want) {
      EXPECT_TRUE(got.intact());
      for (size_t i = 0; i < n; ++i) ASSERT_NEAR(got[i], want[i], 2e-6 * (1 + std::fabs(want[i]))) << n << " " << i;
    };
    Guarded<float> w(w0), m(m0), v(v0);
    const Guarded<float> g(g0);
    auto wd = as_double(w0), gd = as_double(g0), md = as_double(m0), vd = as_double(v0);
    table->adamw(w.data(), g.data(), m.data(), v.data(), n, 0.01f, 0.9f, 0.95f, 1e-3f, 0.1f, 0.3f, 0.2f, 0.7f);
    adamw_reference(wd.data(), gd.data(), md.data(), vd.data(), n, 0.01, 0.9, 0.95, 1e-3, 0.1, 0.3, 0.2, 0.7);
    expect(w, wd), expect(m, md), expect(v, vd);
    table->sgd(w.data(), g.data(), m.data(), n, 0.01f, 0.9f, 0.1f, 0.7f);
    sgd_reference(wd.data(), gd.data(), md.data(), n, 0.01, 0.9, 0.1, 0.7);
    expect(w, wd), expect(m, md);
    const double sum = table->sum_of_squares(g.data(), n), want = sum_of_squares_reference(gd.data(), n);
    EXPECT_NEAR(sum, want, 1e-13 * want) << n;
  }
}

TEST_P(OptimizerTest, EveryTailWithMomentsInBf16EqualsTheDefinition) {
  for (const size_t n : lengths()) {
    const std::vector<float> w0 = random_values(n, 60), g0 = random_values(n, 61), m0 = random_values(n, 62),
                             v0 = random_values(n, 63);
    std::vector<uint16_t> m16(n), v16(n);
    for (size_t i = 0; i < n; ++i) m16[i] = f32_to_bf16(m0[i]), v16[i] = f32_to_bf16(v0[i] * v0[i]);
    Guarded<float> w(w0);
    Guarded<uint16_t> m(m16), v(v16);
    std::vector<float> want = w0;
    table->adamw_bf16(w.data(), g0.data(), m.data(), v.data(), n, 0.01f, 0.9f, 0.95f, 1e-3f, 0.1f, 0.3f, 0.2f, 0.7f, 77, 5);
    adamw_bf16_reference(want.data(), g0.data(), m16.data(), v16.data(), n, 0.01f, 0.9f, 0.95f, 1e-3f, 0.1f, 0.3f, 0.2f, 0.7f, 77,
                         5);
    EXPECT_TRUE(w.intact() && m.intact() && v.intact());
    size_t other = 0;  // a last bit of f32 may turn a rounding
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(w[i], want[i], 2e-6 * (1 + std::fabs(want[i]))) << n << " " << i;
      ASSERT_LE(std::abs(m[i] - m16[i]), 1) << n << " " << i;
      ASSERT_LE(std::abs(v[i] - v16[i]), 1) << n << " " << i;
      other += size_t(m[i] != m16[i]) + size_t(v[i] != v16[i]);
    }
    EXPECT_LE(other, 1 + n / 100) << n;
    // Any cut into parts gives the same bits.
    Guarded<float> w_cut(w0);
    std::vector<uint16_t> m_cut(n), v_cut(n);
    for (size_t i = 0; i < n; ++i) m_cut[i] = f32_to_bf16(m0[i]), v_cut[i] = f32_to_bf16(v0[i] * v0[i]);
    for (size_t at = 0; at < n; at += 5)
      table->adamw_bf16(w_cut.data() + at, g0.data() + at, m_cut.data() + at, v_cut.data() + at, std::min<size_t>(5, n - at),
                        0.01f, 0.9f, 0.95f, 1e-3f, 0.1f, 0.3f, 0.2f, 0.7f, 77 + uint32_t(at), 5);
    EXPECT_EQ(w_cut.values(), w.values());
    EXPECT_EQ(m_cut, m.values());
    EXPECT_EQ(v_cut, v.values());
  }
}

// Each step takes less than half a unit of bf16's last place away, so that rounding to nearest would leave them where they are.
TEST_P(OptimizerTest, MomentsInBf16FadeAsTheyShould) {
  constexpr size_t kNumbers = 2048;
  constexpr int kSteps = 500;
  std::vector<float> w(kNumbers), g(kNumbers);
  std::vector<uint16_t> m(kNumbers, f32_to_bf16(-1)), v(kNumbers, f32_to_bf16(1));
  for (uint32_t step = 0; step < kSteps; ++step)
    table->adamw_bf16(w.data(), g.data(), m.data(), v.data(), kNumbers, 0.0f, 0.999f, 0.999f, 1e-8f, 0.0f, 1.0f, 1.0f, 1.0f, 0,
                      step * 2654435761u);
  double m_mean = 0, v_mean = 0, both = 0;
  for (size_t i = 0; i < kNumbers; ++i) {
    const double x = bf16_to_f32(m[i]), y = bf16_to_f32(v[i]);
    m_mean += x / kNumbers, v_mean += y / kNumbers, both += x * y / kNumbers;
  }
  const double want = std::pow(0.999, kSteps);  // 0.606; the spread of one number is about 0.03
  EXPECT_NEAR(v_mean, want, 0.005);
  EXPECT_NEAR(m_mean, -want, 0.005);
  EXPECT_NEAR(both, m_mean * v_mean, 2e-4);  // rounded independently of one another
}

TEST_P(OptimizerTest, SumOfSquaresNeitherOverflowsNorHidesNaN) {
  std::vector<float> x(100, 1e30f);
  EXPECT_NEAR(table->sum_of_squares(x.data(), x.size()), 1e62, 1e56);
  x[37] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(table->sum_of_squares(x.data(), x.size())));
}

// The square of a gradient above 1e19 leaves f32. An infinite second moment would stay so, and its weight would never move again.
TEST_P(OptimizerTest, TheSecondMomentStaysFinite) {
  std::vector<float> w(21, 1.0f), g(21, 3e25f), m(21), v(21);
  table->adamw(w.data(), g.data(), m.data(), v.data(), w.size(), 0.01f, 0.9f, 0.95f, 1e-8f, 0.0f, 0.1f, 0.05f, 1.0f);
  for (const float x : v) EXPECT_EQ(x, kLargestMoment);
  for (const float x : w) EXPECT_TRUE(std::isfinite(x));
  std::vector<uint16_t> m16(21), v16(21);
  for (uint32_t seed = 0; seed < 50; ++seed)
    table->adamw_bf16(w.data(), g.data(), m16.data(), v16.data(), w.size(), 0.01f, 0.9f, 0.95f, 1e-8f, 0.0f, 0.1f, 0.05f, 1.0f, 0,
                      seed);
  for (const uint16_t x : v16) EXPECT_TRUE(std::isfinite(bf16_to_f32(x)));
}

VITRINE_FOR_EVERY_TARGET(OptimizerTest);

}  // namespace
}  // namespace vitrine
