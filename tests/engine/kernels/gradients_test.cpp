// The backward formulas of kernels/reference against central differences in double.
#include <functional>

#include "kernels/reference/activation.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/rope.h"
#include "kernels/reference/softmax.h"
#include "support.h"

namespace vitrine {
namespace {

constexpr Activation kGradientActivations[] = {Activation::none,         Activation::relu,       Activation::gelu_tanh,
                                               Activation::gelu_exact,   Activation::silu,       Activation::sigmoid,
                                               Activation::relu_squared, Activation::quick_gelu, Activation::tanh};

std::vector<double> random_doubles(size_t n, uint32_t seed) { return as_double(random_values(n, seed)); }

/// d(sum of dy * f(x)) / dx by central differences must equal `gradient`, which was added onto ones.
void expect_gradient(std::vector<double> x, const std::vector<double>& dy, const std::vector<double>& gradient,
                     const std::function<std::vector<double>(const std::vector<double>&)>& f) {
  const double h = 1e-6;
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    double slope = 0;
    for (const double side : {1.0, -1.0}) {
      x[i] = at + side * h;
      const std::vector<double> y = f(x);
      for (size_t j = 0; j < y.size(); ++j) slope += side * dy[j] * y[j] / (2 * h);
    }
    x[i] = at;
    EXPECT_NEAR(gradient[i] - 1, slope, 1e-7 * (1 + std::fabs(slope))) << i;
  }
}

TEST(GradientMatchesFiniteDifference, RmsNorm) {
  const size_t d = 7;
  const auto x = random_doubles(d, 1), w = random_doubles(d, 2), dy = random_doubles(d, 3);
  for (const bool weighted : {true, false}) {
    const auto forward = [&](const std::vector<double>& in, const std::vector<double>& weight, double* r) {
      std::vector<double> y(d);
      rms_norm_reference(in.data(), weighted ? weight.data() : nullptr, 1.0, 1e-6, d, y.data(), r);
      return y;
    };
    double r;
    forward(x, w, &r);
    std::vector<double> dx(d, 1.0), dw(d, 1.0);
    rms_norm_backward(x.data(), weighted ? w.data() : nullptr, 1.0, r, dy.data(), d, dx.data(), weighted ? dw.data() : nullptr);
    expect_gradient(x, dy, dx, [&](const auto& in) { return forward(in, w, nullptr); });
    if (weighted) expect_gradient(w, dy, dw, [&](const auto& weight) { return forward(x, weight, nullptr); });
  }
}

TEST(GradientMatchesFiniteDifference, LayerNorm) {
  const size_t d = 9;
  const auto x = random_doubles(d, 4), w = random_doubles(d, 5), b = random_doubles(d, 6), dy = random_doubles(d, 7);
  for (const bool weighted : {true, false}) {
    const auto forward = [&](const auto& in, const auto& weight, const auto& bias, double* mean, double* s) {
      std::vector<double> y(d);
      layer_norm_reference(in.data(), weighted ? weight.data() : nullptr, weighted ? bias.data() : nullptr, 1e-5, d, y.data(),
                           mean, s);
      return y;
    };
    double mean, s;
    forward(x, w, b, &mean, &s);
    std::vector<double> dx(d, 1.0), dw(d, 1.0), db(d, 1.0);
    layer_norm_backward(x.data(), weighted ? w.data() : nullptr, mean, s, dy.data(), d, dx.data(), weighted ? dw.data() : nullptr,
                        weighted ? db.data() : nullptr);
    expect_gradient(x, dy, dx, [&](const auto& in) { return forward(in, w, b, nullptr, nullptr); });
    if (!weighted) continue;
    expect_gradient(w, dy, dw, [&](const auto& weight) { return forward(x, weight, b, nullptr, nullptr); });
    expect_gradient(b, dy, db, [&](const auto& bias) { return forward(x, w, bias, nullptr, nullptr); });
  }
}

TEST(GradientMatchesFiniteDifference, Activations) {
  std::vector<double> x = random_doubles(31, 8);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= 3;
  const auto dy = random_doubles(x.size(), 9);
  for (const Activation f : kGradientActivations) {
    std::vector<double> dx(x.size(), 1.0);
    activate_backward(f, x.data(), dy.data(), x.size(), dx.data());
    expect_gradient(x, dy, dx, [&](const auto& in) {
      std::vector<double> y(in.size());
      activate_reference(f, in.data(), in.size(), y.data());
      return y;
    });
  }
}

TEST(GradientMatchesFiniteDifference, ActivationDerivativesStayFinite) {
  for (const Activation f : kGradientActivations)
    for (const double x : {-1e4, -700.0, -40.0, 40.0, 700.0, 1e4})
      EXPECT_NEAR(activation_derivative(f, x), far_slope(f, x), 1e-12) << int(f) << " " << x;
}

TEST(GradientMatchesFiniteDifference, Gate) {
  const auto gate = random_doubles(11, 10), up = random_doubles(11, 11), dy = random_doubles(11, 12);
  for (const Activation f : kGradientActivations) {
    std::vector<double> dgate(gate.size(), 1.0), dup(up.size(), 1.0);
    gate_backward(f, gate.data(), up.data(), dy.data(), gate.size(), dgate.data(), dup.data());
    const auto forward = [&](const auto& g, const auto& u) {
      std::vector<double> y(g.size());
      gate_reference(f, g.data(), u.data(), g.size(), y.data());
      return y;
    };
    expect_gradient(gate, dy, dgate, [&](const auto& g) { return forward(g, up); });
    expect_gradient(up, dy, dup, [&](const auto& u) { return forward(gate, u); });
  }
}

TEST(GradientMatchesFiniteDifference, RopeSoftcapSoftmax) {
  const size_t heads = 2, head_dim = 7, rotary = 6;
  const auto x = random_doubles(heads * head_dim, 13), dy = random_doubles(heads * head_dim, 14);
  const double cos[] = {std::cos(0.3), std::cos(1.3), std::cos(2.0)}, sin[] = {std::sin(0.3), std::sin(1.3), std::sin(2.0)};
  for (const RopeLayout layout : {RopeLayout::halves, RopeLayout::pairs}) {
    std::vector<double> dx(x.size(), 1.0);
    rope_backward(dy.data(), cos, sin, layout, heads, head_dim, rotary, dx.data());
    expect_gradient(x, dy, dx, [&](const auto& in) {
      std::vector<double> y(in.size());
      rope_reference(in.data(), cos, sin, layout, heads, head_dim, rotary, y.data());
      return y;
    });
  }
  std::vector<double> dx(x.size(), 1.0);
  softcap_backward(x.data(), 1.5, dy.data(), x.size(), dx.data());
  expect_gradient(x, dy, dx, [&](const auto& in) {
    std::vector<double> y(in.size());
    softcap_reference(in.data(), 1.5, in.size(), y.data());
    return y;
  });
  const auto softmax = [&](const auto& in) {
    std::vector<double> y(in.size());
    softmax_reference(in.data(), in.size(), y.data());
    return y;
  };
  std::fill(dx.begin(), dx.end(), 1.0);
  softmax_backward(softmax(x).data(), dy.data(), x.size(), dx.data());
  expect_gradient(x, dy, dx, softmax);
}

}  // namespace
}  // namespace vitrine
