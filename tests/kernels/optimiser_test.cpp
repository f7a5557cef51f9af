// AdamW and gradient descent: each target against torch.optim (tests/golden/optimisers), at every tail length against the
// definition; the sum of squares.
#include "kernels/reference/optimiser.h"

#include "base/json.h"
#include "support.h"

namespace vitrine {
namespace {

using OptimiserTest = EveryTarget;

TEST_P(OptimiserTest, StepsEqualTorch) {
  for (const Json& c : read_json(VITRINE_GOLDEN "/optimisers/optimisers.json")) {
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

TEST_P(OptimiserTest, EveryTailEqualsTheDefinition) {
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

TEST_P(OptimiserTest, SumOfSquaresNeitherOverflowsNorHidesNaN) {
  std::vector<float> x(100, 1e30f);
  EXPECT_NEAR(table->sum_of_squares(x.data(), x.size()), 1e62, 1e56);
  x[37] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(table->sum_of_squares(x.data(), x.size())));
}

VITRINE_FOR_EVERY_TARGET(OptimiserTest);

}  // namespace
}  // namespace vitrine
