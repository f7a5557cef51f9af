#pragma once
// Gradients of ops against central differences, in double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "ops/linear.h"
#include "ops/tape.h"
#include "ops/weight.h"

namespace vitrine {

/// n values of about unit size; the same for the same seed.
inline std::vector<double> noise(int64_t n, uint64_t seed, double size = 1) {
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto words = philox(seed, i, 0);
    const double u = (words[0] + 0.5) / 0x1p32, v = words[1] / 0x1p32;
    values[i] = size * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  }
  return values;
}

/// Parameters and inputs of a function of ops, the function itself, and its gradients.
class GradientCheck {
 public:
  using Inputs = std::vector<Tensor>;
  using Function = std::function<Tensor(Context&, const Inputs&)>;

  explicit GradientCheck(int threads = 2) : pool_(threads) {}

  void input(const Shape& shape, double size = 1) { inputs_.push_back({shape, noise(shape.count(), ++seed_, size)}); }
  const Weight& weight(int64_t out, int64_t in, bool by_columns = false, bool bias = false) {
    Param& p = *params_.emplace_back(std::make_unique<Param>());
    p.values = noise(out * in, ++seed_, 0.7);
    p.gradient.resize(p.values.size());
    p.weight.name = "weight " + std::to_string(params_.size());
    p.weight.dtype = DType::f64;
    p.weight.out = out;
    p.weight.in = in;
    p.weight.by_columns = by_columns;
    p.weight.stride = sizeof(double) * static_cast<size_t>(by_columns ? out : in);
    p.weight.data = reinterpret_cast<const std::byte*>(p.values.data());
    p.weight.grad = {p.gradient.data(), static_cast<size_t>(by_columns ? out : in)};
    if (bias) p.weight.bias = vector(out);
    return p.weight;
  }
  const Vector& vector(int64_t n) {
    Param& p = *params_.emplace_back(std::make_unique<Param>());
    p.values = noise(n, ++seed_, 0.7);
    p.gradient.resize(p.values.size());
    p.vector.name = "vector " + std::to_string(params_.size());
    p.vector.dtype = DType::f64;
    p.vector.size = n;
    p.vector.data = p.values.data();
    p.vector.grad = {p.gradient.data(), 1};
    return p.vector;
  }

  /// Compares the gradients of sum(y · random) at every input and parameter; `most` values of each, spread evenly.
  void expect_match(const Function& f, Listener* listener = nullptr, int64_t most = 60) {
    listener_ = listener;
    for (const auto& p : params_) std::fill(p->gradient.begin(), p->gradient.end(), 0.0);
    run(f, true);
    for (size_t i = 0; i < inputs_.size(); ++i)
      compare(f, "input " + std::to_string(i), inputs_[i].values, input_gradients_[i], most);
    for (size_t i = 0; i < params_.size(); ++i)
      compare(f, "parameter " + std::to_string(i), params_[i]->values, params_[i]->gradient, most);
  }
  /// The value and, if asked, the gradients into input_gradients() and the parameters'.
  double run(const Function& f, bool gradients) {
    Context ctx(pool_);
    ctx.activations = DType::f64;
    ctx.step_of_training.seed = 11;
    Tape tape;
    ctx.record_on(&tape);
    ctx.listen(listener_);
    Inputs inputs;
    for (const Input& i : inputs_) {
      inputs.push_back(ctx.empty(i.shape));
      std::copy(i.values.begin(), i.values.end(), inputs.back().data<double>());
    }
    const Tensor y = f(ctx, inputs);
    const int64_t n = y.count();
    const std::vector<double> factors = noise(n, 999);
    Weight sum;
    sum.name = "sum";
    sum.dtype = DType::f64;
    sum.out = 1;
    sum.in = n;
    sum.stride = sizeof(double) * static_cast<size_t>(n);
    sum.data = reinterpret_cast<const std::byte*>(factors.data());
    ctx.listen(nullptr);
    const Tensor loss = linear(ctx, y.view({1, n}), sum).view({1});
    const double value = *loss.data<double>();
    if (gradients) {
      tape.backward(ctx, loss);
      input_gradients_.clear();
      for (const Tensor& x : inputs) {
        const Tensor dx = tape.gradient(x);
        input_gradients_.emplace_back(static_cast<size_t>(x.count()), 0.0);
        if (dx) input_gradients_.back().assign(dx.data<double>(), dx.data<double>() + dx.count());
      }
    }
    return value;
  }
  const std::vector<std::vector<double>>& input_gradients() const { return input_gradients_; }

 private:
  struct Input {
    Shape shape;
    std::vector<double> values;
  };
  struct Param {
    std::vector<double> values, gradient;
    Weight weight;
    Vector vector;
  };

  void compare(const Function& f, const std::string& what, std::vector<double>& values, const std::vector<double>& gradient,
               int64_t most) {
    constexpr double kStep = 1e-5;
    const size_t stride = 1 + values.size() / static_cast<size_t>(most);
    double size = 0;
    for (const double g : gradient) size = std::max(size, std::abs(g));
    const std::vector<double> whole = gradient;  // run() may overwrite what the caller passed
    for (size_t i = 0; i < values.size(); i += stride) {
      const double before = values[i];
      values[i] = before + kStep;
      const double above = run(f, false);
      values[i] = before - kStep;
      const double below = run(f, false);
      values[i] = before;
      EXPECT_NEAR(whole[i], (above - below) / (2 * kStep), 1e-7 * (1 + size)) << what << " [" << i << "]";
    }
  }

  ThreadPool pool_;
  Listener* listener_ = nullptr;
  uint64_t seed_ = 0;
  std::vector<Input> inputs_;
  std::vector<std::unique_ptr<Param>> params_;
  std::vector<std::vector<double>> input_gradients_;
};

}  // namespace vitrine
