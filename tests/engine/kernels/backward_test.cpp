// The gradients' kernels: each target against the definition in double, at every tail length, set and added.
#include "kernels/reference/backward.h"

#include <limits>

#include "support.h"

namespace vitrine {
namespace {

using BackwardTest = EveryTarget;
constexpr Activation kActivations[] = {Activation::none,         Activation::relu,       Activation::gelu_tanh,
                                       Activation::gelu_exact,   Activation::silu,       Activation::sigmoid,
                                       Activation::relu_squared, Activation::quick_gelu, Activation::tanh};

/// What lies in a gradient before: added to, or undefined and overwritten.
struct Target {
  Target(size_t n, bool add, uint32_t seed) : got(random_values(n, seed)), want(as_double(got.values())) {
    if (!add) std::fill(got.data(), got.data() + n, std::numeric_limits<float>::quiet_NaN());
  }
  void expect_equal(const char* what, double tolerance = 4e-6) const {
    EXPECT_TRUE(got.intact()) << what;
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::fabs(want[i]))) << what << " " << want.size() << " " << i;
  }
  Guarded<float> got;
  std::vector<double> want;
};

TEST_P(BackwardTest, Norms) {
  for (const size_t d : lengths())
    for (const bool add : {false, true})
      for (const bool weighted : {true, false}) {
        if (d == 0) continue;
        const Guarded<float> x(random_values(d, 80)), w(random_values(d, 81)), dy(random_values(d, 82));
        const auto xd = as_double(x.values()), wd = as_double(w.values()), dyd = as_double(dy.values());
        Target dx(d, add, 83), dw(d, true, 84), db(d, true, 85);
        table->rms_norm_gradient(x.data(), weighted ? w.data() : nullptr, 1.0f, 0.7f, dy.data(), d, dx.got.data(),
                                 weighted ? dw.got.data() : nullptr, add);
        rms_norm_gradient(xd.data(), weighted ? wd.data() : nullptr, 1.0, double(0.7f), dyd.data(), d, dx.want.data(),
                          weighted ? dw.want.data() : nullptr, add);
        dx.expect_equal("dx"), dw.expect_equal("dw");
        table->layer_norm_gradient(x.data(), weighted ? w.data() : nullptr, 0.3f, 0.7f, dy.data(), d, dx.got.data(),
                                   weighted ? dw.got.data() : nullptr, weighted ? db.got.data() : nullptr, add);
        layer_norm_gradient(xd.data(), weighted ? wd.data() : nullptr, double(0.3f), double(0.7f), dyd.data(), d, dx.want.data(),
                            weighted ? dw.want.data() : nullptr, weighted ? db.want.data() : nullptr, add);
        dx.expect_equal("dx"), dw.expect_equal("dw"), db.expect_equal("db");
        table->rms_norm_gradient(x.data(), w.data(), 1.0f, 0.7f, dy.data(), d, nullptr, dw.got.data(), add);  // a constant x
        rms_norm_gradient<double>(xd.data(), wd.data(), 1.0, double(0.7f), dyd.data(), d, nullptr, dw.want.data(), add);
        table->layer_norm_gradient(x.data(), w.data(), 0.3f, 0.7f, dy.data(), d, nullptr, dw.got.data(), nullptr, add);
        layer_norm_gradient<double>(xd.data(), wd.data(), double(0.3f), double(0.7f), dyd.data(), d, nullptr, dw.want.data(),
                                    nullptr, add);
        dw.expect_equal("dw alone");
      }
}

TEST_P(BackwardTest, Rope) {
  for (const RopeLayout layout : {RopeLayout::halves, RopeLayout::pairs})
    for (const size_t rotary : {2, 4, 6, 14, 16, 30, 32, 34, 64, 66, 128, 256})
      for (const size_t extra : {0, 5})
        for (const bool add : {false, true}) {
          const size_t heads = 3, head_dim = rotary + extra;
          const Guarded<float> dy(random_values(heads * head_dim, 86));
          std::vector<float> cosines(rotary / 2), sines(rotary / 2);
          for (size_t i = 0; i < rotary / 2; ++i)
            cosines[i] = std::cos(0.3f * float(i + 1)), sines[i] = std::sin(0.3f * float(i + 1));
          const Guarded<float> cos(cosines), sin(sines);
          const auto dyd = as_double(dy.values()), cd = as_double(cosines), sd = as_double(sines);
          Target dx(heads * head_dim, add, 87);
          table->rope_gradient(dy.data(), cos.data(), sin.data(), layout, heads, head_dim, rotary, dx.got.data(), add);
          rope_gradient(dyd.data(), cd.data(), sd.data(), layout, heads, head_dim, rotary, dx.want.data(), add);
          dx.expect_equal("dx", 1e-6);
        }
}

TEST_P(BackwardTest, ActivationsGatesAndCaps) {
  for (const size_t n : lengths())
    for (const bool add : {false, true}) {
      const Guarded<float> x(random_values(n, 88, 2.0f)), up(random_values(n, 89)), dy(random_values(n, 90));
      const auto xd = as_double(x.values()), ud = as_double(up.values()), dyd = as_double(dy.values());
      for (const Activation f : kActivations) {
        Target dx(n, add, 91), dgate(n, add, 92), dup(n, add, 93);
        table->activate_gradient(f, x.data(), dy.data(), n, dx.got.data(), add);
        activate_gradient(f, xd.data(), dyd.data(), n, dx.want.data(), add);
        dx.expect_equal("activation");
        table->gate_gradient(f, x.data(), up.data(), dy.data(), n, dgate.got.data(), dup.got.data(), add);
        gate_gradient(f, xd.data(), ud.data(), dyd.data(), n, dgate.want.data(), dup.want.data(), add);
        dgate.expect_equal("gate"), dup.expect_equal("up");
        table->gate_gradient(f, x.data(), up.data(), dy.data(), n, dgate.got.data(), nullptr, true);
        table->gate_gradient(f, x.data(), up.data(), dy.data(), n, nullptr, dup.got.data(), true);
        gate_gradient(f, xd.data(), ud.data(), dyd.data(), n, dgate.want.data(), dup.want.data(), true);
        dgate.expect_equal("gate alone"), dup.expect_equal("up alone");
      }
      Target dx(n, add, 94), sum(n, true, 95);
      table->softcap_gradient(x.data(), 1.5f, dy.data(), n, dx.got.data(), add);
      softcap_gradient(xd.data(), 1.5, dyd.data(), n, dx.want.data(), add);
      dx.expect_equal("cap");
      table->add_scaled(x.data(), 0.3f, n, sum.got.data());
      add_scaled_reference(xd.data(), double(0.3f), n, sum.want.data());
      sum.expect_equal("sum", 1e-6);
      EXPECT_NEAR(table->dot(x.data(), dy.data(), n), dot_reference(xd.data(), dyd.data(), n), 1e-6 * double(n + 1));
    }
}

TEST_P(BackwardTest, SlopesOfActivationsEverywhere) {
  std::vector<float> values = {0.0f, -0.0f, 1e-38f, -1e-38f, 88.7f, -88.7f, 1e10f, -1e10f};
  for (float v = 1e-5f; v < 60.0f; v *= 1.01f) values.insert(values.end(), {v, -v});
  const std::vector<float> ones(values.size(), 1.0f);
  std::vector<float> slope(values.size());
  for (const Activation f : kActivations) {
    table->activate_gradient(f, values.data(), ones.data(), values.size(), slope.data(), false);
    for (size_t i = 0; i < values.size(); ++i) {
      const double want = std::fabs(values[i]) > 1e9f ? far_slope(f, values[i]) : activation_derivative(f, double(values[i]));
      ASSERT_NEAR(slope[i], want, 2e-6 * std::max(1.0, std::fabs(want))) << int(f) << " " << values[i];
    }
  }
}

TEST_P(BackwardTest, LossAndPattern) {
  for (const size_t n : lengths())
    for (const float cap : {0.0f, 3.0f}) {
      std::vector<float> capped = random_values(n, 96);
      for (float& v : capped) v = cap != 0 ? cap * std::tanh(v) : v;
      Guarded<float> z(capped);
      auto zd = as_double(capped);
      table->loss_gradient(z.data(), n, 2.0f, 0.3f, cap);
      loss_gradient_reference(zd.data(), n, 2.0, double(0.3f), double(cap));
      EXPECT_TRUE(z.intact());
      for (size_t i = 0; i < n; ++i) ASSERT_NEAR(z[i], zd[i], 2e-7 + 2e-6 * std::fabs(zd[i])) << n << " " << i;
      if (n > kKeyBlock) continue;
      for (const size_t first : {size_t(0), n / 3, n})
        for (const size_t last : {size_t(0), n / 2, n}) {
          // What is not seen may be anything.
          const auto seen = [&](std::vector<float> values) {
            for (size_t j = 0; j < n; ++j)
              if (j < first || j >= last) values[j] = std::numeric_limits<float>::quiet_NaN();
            return values;
          };
          Guarded<float> s(seen(random_values(n, 97, 2.0f))), dp(seen(random_values(n, 98)));
          auto sd = as_double(s.values()), dpd = as_double(dp.values());
          Guarded<float> work(std::vector<float>(n, 0.0f));
          std::vector<double> room(n);
          table->pattern_gradient(s.data(), dp.data(), first, last, n, 0.5f, cap, work.data());
          pattern_gradient_reference(sd.data(), dpd.data(), first, last, n, 0.5, double(cap), room.data());
          EXPECT_TRUE(s.intact() && dp.intact() && work.intact());
          Guarded<float> pattern(seen(random_values(n, 97, 2.0f)));
          table->pattern(pattern.data(), first, last, n, 0.5f, cap);
          EXPECT_TRUE(pattern.intact());
          for (size_t j = 0; j < n; ++j) ASSERT_NEAR(pattern[j], sd[j], 4e-6 * std::fabs(sd[j])) << n << " " << first << " " << j;
          for (size_t j = 0; j < n; ++j) {
            ASSERT_NEAR(s[j], sd[j], 4e-6 * std::fabs(sd[j])) << n << " " << first << " " << last << " " << j;
            ASSERT_NEAR(dp[j], dpd[j], 4e-6 * (std::fabs(dpd[j]) + std::fabs(sd[j]))) << n << " " << j;
          }
        }
    }
}

VITRINE_FOR_EVERY_TARGET(BackwardTest);

}  // namespace
}  // namespace vitrine
