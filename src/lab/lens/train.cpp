#include "lens/train.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/permutation.h"
#include "base/plural.h"
#include "base/stopwatch.h"
#include "collect/contexts.h"
#include "hooks/listening.h"
#include "model/abilities.h"
#include "model/fingerprint.h"
#include "ops/divergence.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/tape.h"
#include "train/schedule.h"

namespace vitrine {
namespace {

constexpr int64_t kPassRows = 2048;  // about so many go through the model together

// Keeps the stream that enters each layer, of all sequences of a step.
class Streams final : public Listener {
 public:
  std::vector<std::string> points;
  std::vector<FloatVector> values;  // [layer][rows, d_model]

  bool wants(std::string_view name) const override { return name.starts_with("blocks.") && name.ends_with(".hook_resid_pre"); }
  Tensor see(Context&, std::string_view name, const Tensor& value) override {
    points.emplace_back(name);
    values.emplace_back(value.data<float>(), value.data<float>() + value.count());
    return {};
  }
  Tensor of(size_t layer, int64_t d_model) {
    FloatVector& x = values[layer];
    return {x.data(), DType::f32, {static_cast<int64_t>(x.size()) / d_model, d_model}};
  }
};

// Runs the contexts, some together: see(streams, what the head reads at the end [rows, d_model]).
template <class F>
void each_pass(Engine& engine, std::span<const ContextIds> contexts, F&& see) {
  Context& ctx = engine.context();
  for (size_t next = 0; next < contexts.size();) {
    Step step;
    do step.add(contexts[next++]);
    while (next < contexts.size() && step.rows() + static_cast<int64_t>(contexts[next].size()) <= kPassRows);
    const auto frame = ctx.frame();
    Streams streams;
    Tensor end;
    {
      const Listening listening(ctx, streams, kEverySequence);
      end = engine.model().residual(ctx, step);
    }
    see(streams, end);
  }
}

// KL(model || what the head reads off x), mean over rows.
Tensor kl(Context& ctx, const Engine& engine, const Tensor& x, const Tensor& end) {
  const std::vector<int32_t> scored(static_cast<size_t>(x.rows()), 0);
  const Head head = engine.model().head();
  return divergence(ctx, x, head, end, head, scored, {.kind = DivergenceSpec::Kind::forward_kl});
}

double number_of(const Tensor& one, const std::string& point) {
  const auto value = static_cast<double>(*one.data<float>());
  if (!std::isfinite(value)) throw RunError("the KL of the lens at " + point + " is no number");
  return value;
}

uint64_t tokens_of(std::span<const ContextIds> contexts) {
  uint64_t tokens = 0;
  for (const ContextIds& context : contexts) tokens += context.size();
  return tokens;
}

std::vector<Weight> translators_of(const ModelShape& shape) {
  std::vector<Weight> weights;
  for (int64_t layer = 0; layer < shape.n_layers; ++layer) {
    Weight w;
    w.name = std::to_string(layer) + ".weight";
    w.out = w.in = shape.d_model;
    w.bias.name = std::to_string(layer) + ".bias";
    w.bias.size = shape.d_model;
    weights.push_back(std::move(w));
  }
  return weights;
}

// Contexts in an order that the seed decides: some held out, the others again and again, each time in another order.
class Draw {
 public:
  Draw(std::vector<ContextIds> all, size_t held_out, uint64_t seed) : seed_(seed) {
    const Permutation order(all.size(), seed);
    for (size_t i = 0; i < all.size(); ++i) (i < held_out ? held_out_ : others_).push_back(std::move(all[order(i)]));
  }
  std::span<const ContextIds> held_out() const { return held_out_; }
  std::vector<ContextIds> next(size_t n) {
    std::vector<ContextIds> drawn;
    for (; drawn.size() < n; ++drawn_) {
      const uint64_t round = drawn_ / others_.size();
      const Permutation order(others_.size(), seed_ + 0x9E3779B97F4A7C15u * (round + 1));
      drawn.push_back(others_[order(drawn_ % others_.size())]);
    }
    return drawn;
  }

 private:
  std::vector<ContextIds> held_out_, others_;
  uint64_t seed_, drawn_ = 0;
};

Draw draw_contexts(const Engine& engine, DocumentTokens& documents, const LensTrainOptions& o) {
  const ContextForm form = context_form(engine, o.context, o.special);
  Contexts contexts(documents, form.length, form.lead, o.max_tokens);
  std::vector<ContextIds> all;
  for (ContextIds one = contexts.next(); !one.empty(); one = contexts.next()) all.push_back(std::move(one));
  const auto held_out = static_cast<size_t>(o.held_out);
  if (all.size() <= held_out)
    throw InputError("the text has " + plural(all.size(), "context") + " of up to " + std::to_string(form.length) +
                     " tokens, and " + std::to_string(held_out) +
                     " are held out, which leaves none to learn from. Give more text, or hold out fewer");
  return {std::move(all), held_out, o.seed};
}

}  // namespace

std::vector<LensKl> lens_kl(Engine& engine, const TunedLens& lens, std::span<const ContextIds> contexts) {
  require_plain_head(engine.model(), engine.name(), "A tuned lens");
  Context& ctx = engine.context();
  const FinalNorm norm(engine.model());
  const auto all = static_cast<double>(tokens_of(contexts));
  std::vector<LensKl> found(lens.translators.size());
  each_pass(engine, contexts, [&](Streams& streams, const Tensor& end) {
    const double share = static_cast<double>(end.rows()) / all;
    for (size_t layer = 0; layer < found.size(); ++layer) {
      const auto frame = ctx.frame();
      const Tensor h = streams.of(layer, lens.d_model);
      LensKl& of = found[layer];
      of.point = streams.points[layer];
      of.logit += share * number_of(kl(ctx, engine, norm(ctx, h), end), of.point);
      of.tuned += share * number_of(kl(ctx, engine, norm(ctx, lens.translated(ctx, layer, h)), end), of.point);
    }
  });
  return found;
}

LensTrainer::LensTrainer(Engine& engine, const OptimizerOptions& optimizer)
    : engine_(engine),
      norm_(engine.model()),
      weights_(translators_of(engine.shape())),
      parameters_(weights_),
      shards_(parameters_, alone_),
      optimizer_(optimizer, parameters_, shards_) {
  require_plain_head(engine.model(), engine.name(), "A tuned lens");
}

std::vector<double> LensTrainer::step(std::span<const ContextIds> contexts, double lr) {
  Context& ctx = engine_.context();
  const auto all = static_cast<double>(tokens_of(contexts));
  std::vector<double> before(weights_.size());
  each_pass(engine_, contexts, [&](Streams& streams, const Tensor& end) {
    const double share = static_cast<double>(end.rows()) / all;
    for (size_t layer = 0; layer < weights_.size(); ++layer) {
      const auto frame = ctx.frame();
      const Recording recording(ctx, tape_);
      const Tensor h = streams.of(layer, engine_.shape().d_model);
      const Tensor x = norm_(ctx, add(ctx, h, linear(ctx, h, weights_[layer])));
      const Tensor loss = scale(ctx, kl(ctx, engine_, x, end), share);
      before[layer] += number_of(loss, streams.points[layer]);
      tape_.backward(ctx, loss);
      tape_.clear();
    }
  });
  if (!std::isfinite(optimizer_.gradient_norms(ctx.pool()).whole)) throw RunError("the gradient of the lens is no number");
  optimizer_.step(ctx.pool(), lr, 1, ++steps_);
  return before;
}

TunedLens LensTrainer::lens() const {
  TunedLens lens;
  lens.d_model = engine_.shape().d_model;
  const auto values = [&](size_t i) {
    const Parameter& p = parameters_.list()[i];
    return FloatVector(parameters_.weights(p), parameters_.weights(p) + p.count);
  };
  for (size_t layer = 0; layer < weights_.size(); ++layer) lens.translators.push_back({values(2 * layer), values(2 * layer + 1)});
  lens.model = last_of_name(engine_);
  lens.fingerprint = hexadecimal(fingerprint_of(engine_.opened()));
  return lens;
}

TrainedLens train_lens(Engine& engine, DocumentTokens& documents, const LensTrainOptions& o,
                       const std::function<bool(const LensProgress&)>& see) {
  LensTrainer trainer(engine, {.beta2 = 0.999, .weight_decay = 0});
  Draw contexts = draw_contexts(engine, documents, o);
  const Schedule rate{.decay = Schedule::Decay::linear,
                      .peak = o.lr,
                      .warmup = o.lr_warm_up >= 0 ? o.lr_warm_up : o.steps / 10,
                      .length = o.steps};
  TrainedLens result;
  for (bool on = true; on && result.steps < o.steps;) {
    const Stopwatch watch;
    const double lr = rate.at(result.steps);
    const std::vector<ContextIds> batch = contexts.next(static_cast<size_t>(o.batch));
    const std::vector<double> before = trainer.step(batch, lr);
    ++result.steps;
    result.tokens += tokens_of(batch);
    result.seconds += watch.ms() / 1000;
    if (see)
      on = see({.step = result.steps,
                .kl = std::accumulate(before.begin(), before.end(), 0.0) / static_cast<double>(before.size()),
                .lr = lr,
                .tokens_per_s = static_cast<double>(result.tokens) / std::max(result.seconds, 1e-9)});
  }
  result.lens = trainer.lens();
  result.kl = lens_kl(engine, result.lens, contexts.held_out());
  result.held_out_tokens = tokens_of(contexts.held_out());
  return result;
}

}  // namespace vitrine
