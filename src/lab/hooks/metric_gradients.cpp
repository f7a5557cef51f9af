#include "hooks/metric_gradients.h"

#include <cmath>
#include <deque>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "hooks/gradient_recording.h"
#include "hooks/hooks.h"
#include "hooks/listening.h"
#include "ops/head.h"
#include "ops/listener_chain.h"
#include "ops/step.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct GivenDerivativeNode {
  Tensor logits, sum, derivative;
};

void given_derivative_backward(Context&, Tape& tape, const GivenDerivativeNode& node) {
  const Tensor dz = tape.accumulate(node.logits);
  if (!dz) return;
  visit_scalar(dz, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < dz.count(); ++i) dz.data<T>()[i] += node.derivative.data<T>()[i];
  });
}

// The end of a tape whose gradient at the logits is known.
Tensor end_with(Context& ctx, const Tensor& logits, const Tensor& derivative) {
  const Tensor sum = ctx.zeros({1});
  ctx.tape()->record(&given_derivative_backward, GivenDerivativeNode{logits, sum, derivative});
  return sum;
}

// A sequence whose forward pass is done and whose backward pass is not.
struct Recorded {
  Recorded(Context& ctx, std::span<const int32_t> ids, std::span<const Capture> captures, Listener* edits)
      : step(Step::of(ids)), gradients(ctx, captures), listener({edits, &gradients}) {}
  Step step;
  GradientRecording gradients;
  ListenerChain listener;
  Tape tape;  // a block that is run again in backward would show nobody its hooks
};

void require_finite_logits(Engine& engine, const Step& step, const Tensor& z, std::span<const int64_t> rows) {
  const int64_t bad = first_not_finite(z);
  if (bad >= 0) engine.report_not_finite(step, rows.subspan(static_cast<size_t>(bad), 1));
}

}  // namespace

HookGradients metric_gradients(Engine& engine, std::span<const std::vector<int32_t>> sequences, LogitsMetric& metric,
                               std::span<const std::string> hooks, std::span<Listener* const> listeners, size_t memory) {
  VITRINE_CHECK(listeners.empty() || listeners.size() == sequences.size(), "there is a listener for each sequence");
  if (sequences.empty()) throw InputError("there are no tokens to run; give at least one sequence");
  std::vector<HookQuery> queries;
  for (const std::string& hook : hooks) queries.push_back(parse_hook_query(hook));
  std::vector<std::vector<Capture>> captures;
  size_t bytes = 0;
  for (const auto& ids : sequences) {
    engine.check_ids(ids);
    captures.push_back(plan_captures(engine.model(), queries, static_cast<int64_t>(ids.size())));
    bytes += capture_bytes(captures.back()) + 2 * ids.size() * static_cast<size_t>(engine.shape().vocab_size) * sizeof(float);
  }
  require_memory(bytes, memory, "The logits of every token and the gradients at these hooks",
                 "Ask for fewer hooks, for slices of them, or for fewer sequences at a time");
  HookGradients result;
  for (const Capture& capture : captures.front()) result.order.push_back(capture.name);

  Context& ctx = engine.context();
  const auto frame = ctx.frame();
  std::deque<Recorded> recorded;
  std::vector<Tensor> all_logits, derivatives;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Recorded& mine = recorded.emplace_back(ctx, sequences[i], captures[i], listeners.empty() ? nullptr : listeners[i]);
    const Listening listening(ctx, mine.listener);
    const Recording recording(ctx, mine.tape);
    const Tensor x = engine.model().residual(ctx, mine.step);
    std::vector<int64_t> rows(sequences[i].size());
    std::iota(rows.begin(), rows.end(), 0);
    all_logits.push_back(logits(ctx, x, engine.model().head(), rows));
    require_finite_logits(engine, mine.step, all_logits.back(), rows);
    derivatives.push_back(ctx.zeros(all_logits.back().shape()));
  }
  result.loss = metric.evaluate(all_logits, derivatives);
  bool finite = std::isfinite(result.loss);
  for (const Tensor& d : derivatives) finite = finite && first_not_finite(d) < 0;
  if (!finite) throw RunError("the metric or its derivative is NaN or infinite, while all logits are finite; mend the metric");
  for (size_t i = 0; i < sequences.size(); ++i) {
    Recorded& mine = recorded[i];
    const Listening listening(ctx, mine.listener);
    {
      const Recording recording(ctx, mine.tape);
      mine.tape.backward(ctx, end_with(ctx, all_logits[i], derivatives[i]));
    }
    result.values.push_back(completed(mine.gradients.take_values(), captures[i]));
  }
  return result;
}

}  // namespace vitrine
