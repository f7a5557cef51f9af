#include "ops/state_space.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/table.h"
#include "ops/dry_run.h"
#include "ops/elementwise.h"
#include "ops/recurrence.h"
#include "ops/state_scan.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct TimeStepNode {
  Tensor x, y;
  const Vector* bias;
  TimeStepLimits limits;
};

void time_step_backward(Context& ctx, Tape& tape, const TimeStepNode& node) {
  const Tensor dy = tape.gradient(node.y), dx = tape.accumulate(node.x);
  if (!dy) return;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, dy.dim(1), 16 * dy.rows(), [&](int64_t first, int64_t n) {
      for (int64_t head = first; head < first + n; ++head) {
        const T bias = node.bias->at<T>(head);
        T sum = 0;
        for (int64_t r = 0; r < dy.rows(); ++r) {
          const T x = node.x.row<T>(r)[head] + bias, y = softplus(x);
          if (y < static_cast<T>(node.limits.least) || y > static_cast<T>(node.limits.most)) continue;
          const T slope = dy.row<T>(r)[head] / (1 + std::exp(-x));
          sum += slope;
          if (dx) dx.row<T>(r)[head] += slope;
        }
        add_to(*node.bias, head, sum);
      }
    });
  });
  tape.release(node.y);
}

struct ScaleNode {
  Tensor x, y;
  const Vector* w;
  bool is_log;
};

template <class T>
void multiply(const T* a, const T* b, int64_t n, T* y) {
  of_type<T>(kernels().gate, gate_reference<double>)(Activation::none, a, b, static_cast<size_t>(n), y);
}

void scale_heads_backward(Context& ctx, Tape& tape, const ScaleNode& node) {
  const Tensor dy = tape.gradient(node.y), dx = tape.accumulate(node.x);
  if (!dy) return;
  const int64_t heads = node.w->size, d = dy.row_size() / heads;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, heads, d * dy.rows(), [&](int64_t first, int64_t n) {
      for (int64_t head = first; head < first + n; ++head) {
        const T factor = decay_factor<T>(*node.w, head, node.is_log);
        T sum = 0;
        for (int64_t r = 0; r < dy.rows(); ++r) {
          const T *x = node.x.row<T>(r) + head * d, *g = dy.row<T>(r) + head * d;
          for (int64_t j = 0; j < d; ++j) sum += x[j] * g[j];
          for (int64_t j = 0; j < d && dx; ++j) dx.row<T>(r)[head * d + j] += factor * g[j];
        }
        add_to(*node.w, head, node.is_log ? sum * factor : sum);
      }
    });
  });
  tape.release(node.y);
}

}  // namespace

Tensor state_space(Context& ctx, std::string_view name, const Tensor& x, const Tensor& B, const Tensor& C, const Tensor& delta,
                   const Tensor& log_decay, const Vector& D, const Step& step, int layer) {
  const auto scope = ctx.scope(name);
  Tensor z = state_scan(ctx, {.q = C, .k = B, .v = x, .log_decay = log_decay, .beta = delta}, step, layer);
  if (DryRun* dry = ctx.dry()) {
    const DeltaSpec spec{.n_heads = x.dim(1), .n_key_heads = B.dim(1), .d_key = B.dim(2), .d_value = x.dim(2)};
    dry->add(ctx, {.op = "state_space",
                   .inputs = {x, B, C, delta, log_decay},
                   .outputs = {z},
                   .spec = spec,
                   .cache_layer = layer,
                   .multiply_adds = 3 * x.rows() * spec.states()});
  }
  z = ctx.hook("hook_state_z", z);
  return ctx.hook("hook_z", add(ctx, z, scale_heads(ctx, x, D)));
}

Tensor time_step(Context& ctx, const Tensor& x, const Vector& bias, const TimeStepLimits& limits) {
  if (x.shape().rank() != 2 || bias.size != x.dim(1))
    throw ShapeError("time_step: x " + x.shape().text() + " with " + std::to_string(bias.size) +
                     " biases; expected [rows, heads] and one for every head");
  const Tensor y = ctx.empty(x.shape());
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const T least = static_cast<T>(limits.least), most = static_cast<T>(limits.most);
    parallel_for(ctx, x.rows(), 16 * x.dim(1), [&](int64_t first, int64_t n) {
      for (int64_t head = 0; head < x.dim(1); ++head) {
        const T b = bias.at<T>(head);
        for (int64_t r = first; r < first + n; ++r)
          y.row<T>(r)[head] = std::min(std::max(softplus(x.row<T>(r)[head] + b), least), most);
      }
    });
  });
  if (Tape* tape = ctx.tape()) tape->record(&time_step_backward, TimeStepNode{x, y, &bias, limits});
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "time_step", .inputs = {x}, .outputs = {y}, .vectors = {&bias}});
  return y;
}

Tensor scale_heads(Context& ctx, const Tensor& x, const Vector& w, bool is_log) {
  if (x.shape().rank() < 2 || w.size <= 0 || x.dim(1) != w.size)
    throw ShapeError("scale_heads: x " + x.shape().text() + " with " + std::to_string(w.size) +
                     " factors; expected [rows, heads] or [rows, heads, d] and one for every head");
  const Tensor y = ctx.empty(x.shape());
  const auto scratch = ctx.frame();
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    // As many as a row has numbers, so that a row is one product.
    T* const factors = ctx.scratch<T>(static_cast<size_t>(x.row_size()));
    const int64_t d = x.row_size() / w.size;
    ctx.run(1, false, [&](int64_t, int) {
      for (int64_t head = 0; head < w.size; ++head) std::fill_n(factors + head * d, d, decay_factor<T>(w, head, is_log));
    });
    parallel_for(ctx, x.rows(), x.row_size(), [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r) multiply(factors, x.row<T>(r), x.row_size(), y.row<T>(r));
    });
  });
  if (Tape* tape = ctx.tape()) tape->record(&scale_heads_backward, ScaleNode{x, y, &w, is_log});
  if (DryRun* dry = ctx.dry())
    dry->add(ctx, {.op = "scale_heads", .inputs = {x}, .outputs = {y}, .vectors = {&w}, .spec = DecaySpec{is_log}});
  return y;
}

}  // namespace vitrine
