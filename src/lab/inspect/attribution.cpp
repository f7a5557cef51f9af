#include "inspect/attribution.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "hooks/listening.h"
#include "hooks/objective.h"
#include "inspect/weights.h"
#include "ops/tape.h"
#include "runtime/row_math.h"

namespace vitrine {
namespace {

constexpr std::string_view kInput = "hook_embed";

// Reads the embeddings, or puts others in their place, and hears the gradient at them.
class Embeddings final : public Listener {
 public:
  bool wants(std::string_view name) const override { return name == kInput; }
  Tensor see(Context&, std::string_view, const Tensor& value) override {
    if (!replacement.empty()) return {replacement.data(), DType::f32, value.shape()};
    seen.assign(value.data<float>(), value.data<float>() + value.count());
    return {};
  }
  bool wants_gradient(std::string_view name) const override { return name == kInput; }
  void see_gradient(std::string_view, const Tensor& value) override {
    gradient.assign(value.data<float>(), value.data<float>() + value.count());
  }
  std::vector<float> seen, replacement, gradient;  // [position, d_model]
};

// The mean row of the embedding table, as it enters the stream.
std::vector<float> mean_embedding(Engine& engine) {
  const Weight& W_E = NamedWeights(*engine.opened().model).matrix("W_E");
  std::vector<double> sum(static_cast<size_t>(W_E.in));
  for (int64_t row = 0; row < W_E.out; ++row)
    for (int64_t i = 0; i < W_E.in; ++i) sum[static_cast<size_t>(i)] += W_E.at<double>(row, i);
  std::vector<float> mean;
  for (const double x : sum)
    mean.push_back(static_cast<float>(x / static_cast<double>(W_E.out) * engine.shape().embedding_scale));
  return mean;
}

double dot(const float* a, const float* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

}  // namespace

Quadrature gauss_legendre(int64_t n) {
  // The points are the roots of the Legendre polynomial P_n, found by Newton's method from an estimate that is close enough;
  // weights 2 / ((1 - x²) P_n'(x)²) on [-1, 1].
  Quadrature q;
  for (int64_t i = n; i >= 1; --i) {
    const auto order = static_cast<double>(n);
    double x = std::cos(M_PI * (static_cast<double>(i) - 0.25) / (order + 0.5)), slope = 0;
    for (int round = 0; round < 100; ++round) {
      double before = 1, now = x;  // P_0, P_1
      for (int64_t k = 2; k <= n; ++k) {
        const auto d = static_cast<double>(k);
        before = std::exchange(now, ((2 * d - 1) * x * now - (d - 1) * before) / d);
      }
      slope = order * (x * now - before) / (x * x - 1);
      const double change = now / slope;
      x -= change;
      if (std::abs(change) < 1e-15) break;
    }
    q.points.push_back((x + 1) / 2);
    q.weights.push_back(1 / ((1 - x * x) * slope * slope));
  }
  return q;
}

class AttributionRuns::Runs {
 public:
  Runs(Engine& engine, std::span<const int32_t> ids, const AttributionOptions& options)
      : engine_(engine), ids_(ids.begin(), ids.end()), options_(options), width_(static_cast<size_t>(engine.shape().d_model)) {
    engine.check_ids(ids);
    for (const auto& token : {options.token, options.against})
      if (token && (*token < 0 || *token >= engine.shape().vocab_size))
        throw InputError("token " + std::to_string(*token) + " is outside the vocabulary (0 to " +
                         std::to_string(engine.shape().vocab_size - 1) + ")");
    if (options.steps < 0 || options.steps > 4096)
      throw InputError("steps is " + std::to_string(options.steps) + "; expected 0 (no integrated gradients) to 4096");
    if (options.against) result_.against = NamedToken{*options.against};
    result_.steps = options.steps;
    if (options.steps == 0) return;
    points_ = gauss_legendre(options.steps);
    result_.baseline = options.baseline;
  }

  bool done() const { return made_ == (options_.steps == 0 ? 1 : points_.points.size() + 2); }

  void next() {
    if (made_ == 0)
      at_the_prompt();
    else if (made_ == 1)
      at_the_baseline();
    else
      at_a_point(made_ - 2);
    ++made_;
    if (done() && options_.steps > 0) {
      double sum = 0;
      for (const double part : *result_.integrated) sum += part;
      result_.gap = sum - (result_.value - *result_.baseline_value);
    }
  }

  Attribution take() && { return std::move(result_); }

 private:
  void at_the_prompt() {
    result_.value = run();
    result_.token = *options_.token;
    const std::vector<float>& e = embeddings_.seen;
    for (size_t at = 0; at < e.size(); at += width_) {
      const float* g = embeddings_.gradient.data() + at;
      result_.saliency.push_back(std::sqrt(dot(g, g, width_)));
      result_.gradient_input.push_back(dot(g, e.data() + at, width_));
    }
  }

  void at_the_baseline() {
    b_ = options_.baseline == Baseline::mean ? mean_embedding(engine_) : std::vector<float>(width_);
    embeddings_.replacement.resize(embeddings_.seen.size());
    result_.baseline_value = go(0);
    result_.integrated.emplace(ids_.size());
  }

  void at_a_point(size_t point) {
    go(points_.points[point]);
    const std::vector<float>& e = embeddings_.seen;
    for (size_t i = 0; i < e.size(); ++i)
      (*result_.integrated)[i / width_] += points_.weights[point] * static_cast<double>(embeddings_.gradient[i]) *
                                           (static_cast<double>(e[i]) - static_cast<double>(b_[i % width_]));
  }

  double go(double share) {  // to b + share · (e - b)
    const std::vector<float>& e = embeddings_.seen;
    for (size_t i = 0; i < e.size(); ++i) {
      const auto from = static_cast<double>(b_[i % width_]);
      embeddings_.replacement[i] = static_cast<float>(from + share * (static_cast<double>(e[i]) - from));
    }
    return run();
  }

  double run() {  // f, and its gradient in embeddings_; the most likely token, if none was given, in options_
    Context& ctx = engine_.context();
    const Listening listening(ctx, embeddings_);
    const auto frame = ctx.frame();
    tape_.clear();
    const Recording recording(ctx, tape_);
    const Step step = Step::of(ids_);
    const Tensor x = engine_.model().residual(ctx, step);
    const int64_t last = std::ssize(ids_) - 1;
    const Tensor z = logits(ctx, x, engine_.model().head(), std::span(&last, 1));
    if (first_not_finite(z) >= 0) engine_.report_not_finite(step, std::span(&last, 1));
    const bool given = options_.token.has_value();
    if (!given) options_.token = static_cast<int32_t>(argmax({z.data<float>(), static_cast<size_t>(z.count())}));
    const int32_t token = *options_.token;
    if (options_.against == token)
      throw InputError("token " + std::to_string(token) + (given ? "" : ", the most likely,") +
                       " is explained against itself, which leaves nothing to explain. Choose another one for either");
    std::vector<LogprobTerm> terms = {{0, token, 1}};
    if (options_.against) terms.push_back({0, *options_.against, -1});
    const Tensor f = sum_of_logprobs(ctx, z, terms);
    const auto value = static_cast<double>(*f.data<float>());
    if (!std::isfinite(value))
      throw RunError("the log-probability is NaN or infinite, so it has no gradient. A trace of hooks shows where that begins");
    embeddings_.gradient.assign(ids_.size() * width_, 0);
    tape_.backward(ctx, f);
    return value;
  }

  Engine& engine_;
  const std::vector<int32_t> ids_;
  AttributionOptions options_;
  const size_t width_;
  Quadrature points_;
  Embeddings embeddings_;
  Tape tape_{Tape::kAllBlocks};
  std::vector<float> b_;  // the baseline's embedding
  size_t made_ = 0;       // runs
  Attribution result_;
};

AttributionRuns::AttributionRuns(Engine& engine, std::span<const int32_t> ids, const AttributionOptions& options)
    : runs_(std::make_unique<Runs>(engine, ids, options)) {}
AttributionRuns::~AttributionRuns() = default;
bool AttributionRuns::done() const { return runs_->done(); }
void AttributionRuns::next() { runs_->next(); }
Attribution AttributionRuns::take() && { return std::move(*runs_).take(); }

Attribution attribute(Engine& engine, std::span<const int32_t> ids, const AttributionOptions& options,
                      const std::function<void()>& before_run) {
  AttributionRuns runs(engine, ids, options);
  while (!runs.done()) {
    if (before_run) before_run();
    runs.next();
  }
  return std::move(runs).take();
}

}  // namespace vitrine
