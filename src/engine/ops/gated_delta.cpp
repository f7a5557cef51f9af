#include "ops/gated_delta.h"

#include <cmath>

#include "kernels/reference/backward.h"
#include "kernels/table.h"
#include "ops/dry_run.h"
#include "ops/recurrence.h"
#include "ops/rows.h"
#include "ops/state_scan.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct NormNode {
  Tensor x, y;
  double eps, factor;
};

// 1 / sqrt(Σ x² + eps)
template <class T>
T inverse_length(const T* x, size_t d, double eps) {
  return 1 / std::sqrt(inner(x, x, d) + static_cast<T>(eps));
}

void l2_norm_backward(Context& ctx, Tape& tape, const NormNode& node) {
  const Tensor dy = tape.gradient(node.y), dx = tape.accumulate(node.x);
  if (!dy || !dx) return;
  const int64_t d = node.x.dim(node.x.shape().rank() - 1);
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, dy.count() / d, d, [&](int64_t first, int64_t n) {
      for (int64_t i = first * d; i < (first + n) * d; i += d) {
        const T *x = node.x.data<T>() + i, *g = dy.data<T>() + i;
        const T r = inverse_length(x, static_cast<size_t>(d), node.eps), c = static_cast<T>(node.factor) * r;
        const T along = inner(x, g, static_cast<size_t>(d)) * r * r;
        for (int64_t j = 0; j < d; ++j) dx.data<T>()[i + j] += c * (g[j] - along * x[j]);
      }
    });
  });
  tape.release(node.y);
}

struct DecayNode {
  Tensor x, y;
  const Vector *A, *dt_bias;
  bool is_log;
};

void decay_log_backward(Context& ctx, Tape& tape, const DecayNode& node) {
  const Tensor dy = tape.gradient(node.y), dx = tape.accumulate(node.x);
  if (!dy) return;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, dy.dim(1), 16 * dy.rows(), [&](int64_t first, int64_t n) {
      for (int64_t head = first; head < first + n; ++head) {
        const T factor = decay_factor<T>(*node.A, head, node.is_log), bias = node.dt_bias->at<T>(head);
        T dA = 0, dbias = 0;
        for (int64_t r = 0; r < dy.rows(); ++r) {
          const T x = node.x.row<T>(r)[head] + bias, g = dy.row<T>(r)[head];
          const T slope = g * factor / (1 + std::exp(-x));
          dA += g * softplus(x) * (node.is_log ? factor : T{1});
          dbias += slope;
          if (dx) dx.row<T>(r)[head] += slope;
        }
        add_to(*node.A, head, dA);
        add_to(*node.dt_bias, head, dbias);
      }
    });
  });
  tape.release(node.y);
}

}  // namespace

Tensor gated_delta(Context& ctx, std::string_view name, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& log_decay, const Tensor& beta, const Step& step, int layer, bool tiled) {
  const auto scope = ctx.scope(name);
  const Tensor z = state_scan(ctx, {q, k, v, log_decay, beta, tiled, true}, step, layer);
  if (DryRun* dry = ctx.dry()) {
    const DeltaSpec spec{.n_heads = v.dim(1), .n_key_heads = q.dim(1), .d_key = q.dim(2), .d_value = v.dim(2), .tiled = tiled};
    dry->add(ctx, {.op = "gated_delta",
                   .inputs = {q, k, v, log_decay, beta},
                   .outputs = {z},
                   .spec = spec,
                   .cache_layer = layer,
                   .multiply_adds = 4 * q.rows() * spec.states()});
  }
  return ctx.hook("hook_z", z);
}

Tensor l2_norm(Context& ctx, const Tensor& x, double eps, double factor) {
  const Tensor y = ctx.empty(x.shape());
  const int64_t d = x.dim(x.shape().rank() - 1);
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, x.count() / d, d, [&](int64_t first, int64_t n) {
      for (int64_t i = first * d; i < (first + n) * d; i += d) {
        const T r = inverse_length(x.data<T>() + i, static_cast<size_t>(d), eps);
        scale_into(x.data<T>() + i, r * static_cast<T>(factor), static_cast<size_t>(d), y.data<T>() + i);
      }
    });
  });
  if (Tape* tape = ctx.tape()) tape->record(&l2_norm_backward, NormNode{x, y, eps, factor});
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "l2_norm", .inputs = {x}, .outputs = {y}, .spec = NormSpec{.eps = eps}});
  return y;
}

Tensor decay_log(Context& ctx, const Tensor& x, const Vector& A, const Vector& dt_bias, bool is_log) {
  if (x.shape().rank() != 2 || A.size != x.dim(1) || dt_bias.size != x.dim(1))
    throw ShapeError("decay_log: x " + x.shape().text() + " with " + std::to_string(A.size) + " factors and " +
                     std::to_string(dt_bias.size) + " biases; expected [rows, heads] and one of each for every head");
  const Tensor y = ctx.empty(x.shape());
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, x.rows(), 16 * x.dim(1), [&](int64_t first, int64_t n) {
      for (int64_t head = 0; head < x.dim(1); ++head) {
        const T factor = decay_factor<T>(A, head, is_log), bias = dt_bias.at<T>(head);
        for (int64_t r = first; r < first + n; ++r) y.row<T>(r)[head] = factor * softplus(x.row<T>(r)[head] + bias);
      }
    });
  });
  if (Tape* tape = ctx.tape()) tape->record(&decay_log_backward, DecayNode{x, y, &A, &dt_bias, is_log});
  if (DryRun* dry = ctx.dry())
    dry->add(ctx, {.op = "decay_log", .inputs = {x}, .outputs = {y}, .vectors = {&A, &dt_bias}, .spec = DecaySpec{is_log}});
  return y;
}

}  // namespace vitrine
