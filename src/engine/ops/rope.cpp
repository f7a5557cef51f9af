#include "ops/rope.h"

#include <algorithm>

#include "kernels/reference/backward.h"
#include "kernels/table.h"
#include "ops/dry_run.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct RopeNode {
  Tensor x, y;
  const Step* step;
  RopeSpec spec;
};

// The angles' cosines and sines of one row in double, for gradient checks.
struct WideAngles {
  double *cos, *sin;
};
WideAngles widen(Context& ctx, const Step::Angles& angles) {
  const size_t n = angles.cos.size();
  const WideAngles wide{ctx.scratch<double>(n), ctx.scratch<double>(n)};
  for (size_t i = 0; i < n; ++i) wide.cos[i] = angles.cos[i], wide.sin[i] = angles.sin[i];
  return wide;
}

// f(heads, components of each, offset of the first) for what the kernels rotate at a time: all heads of a row, or one after the
// other where the components before `first` stay.
template <class F>
void each_rotation(size_t heads, size_t head_dim, size_t first, F&& f) {
  if (first == 0) return f(heads, head_dim, size_t{0});
  for (size_t h = 0; h < heads; ++h) f(size_t{1}, head_dim - first, h * head_dim + first);
}

void copy_row(const Tensor& x, const Tensor& y, int64_t r) {
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    std::copy_n(x.row<T>(r), x.row_size(), y.row<T>(r));
  });
}

// The gradient of the first `still` components of each head of a row.
void pass_still(const Tensor& dy, const Tensor& dx, size_t still, bool fresh) {
  const auto heads = static_cast<size_t>(dy.dim(1)), head_dim = static_cast<size_t>(dy.dim(2));
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    for (size_t h = 0; h < heads; ++h)
      for (size_t i = h * head_dim; i < h * head_dim + still; ++i)
        dx.data<T>()[i] = dy.data<T>()[i] + (fresh ? T{0} : dx.data<T>()[i]);
  });
}

void rope_node_backward(Context& ctx, Tape& tape, const RopeNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tape::Sum sum = tape.contribute(node.x);
  if (!sum) return;
  const Tensor& dx = sum.to;
  const Step::Angles& angles = node.step->angles(node.spec);
  const auto heads = static_cast<size_t>(dy.dim(1)), head_dim = static_cast<size_t>(dy.dim(2));
  const auto turning = static_cast<size_t>(node.spec.rotary_dim), half = turning / 2;
  const auto still = static_cast<size_t>(node.spec.first);
  const bool wide = dy.dtype() == DType::f64;
  const WideAngles in_double = wide ? widen(ctx, angles) : WideAngles{};
  parallel_for(ctx, dy.rows(), dy.row_size(), [&](int64_t first, int64_t n) {
    for (int64_t r = first; r < first + n; ++r) {
      const size_t at = static_cast<size_t>(r) * half;
      if (still > 0) pass_still(dy.rows_view(r, 1), dx.rows_view(r, 1), still, sum.fresh);
      each_rotation(heads, head_dim, still, [&](size_t n_heads, size_t d, size_t from) {
        if (wide) {
          rope_gradient<double>(dy.row<double>(r) + from, in_double.cos + at, in_double.sin + at, node.spec.layout, n_heads, d,
                                turning, dx.row<double>(r) + from, !sum.fresh);
        } else {
          kernels().rope_gradient(dy.row<float>(r) + from, &angles.cos[at], &angles.sin[at], node.spec.layout, n_heads, d,
                                  turning, dx.row<float>(r) + from, !sum.fresh);
        }
      });
    }
  });
  tape.release(node.y);
}

}  // namespace

Tensor rope(Context& ctx, const Tensor& x, const Step& step, const RopeSpec& spec) {
  if (x.shape().rank() != 3 || spec.rotary_dim % 2 != 0 || spec.rotary_dim <= 0 || spec.first < 0 ||
      spec.first + spec.rotary_dim > x.dim(2) || x.rows() != step.rows())
    throw ShapeError("rope: rotating " + std::to_string(spec.rotary_dim) + " components from " + std::to_string(spec.first) +
                     " of x of shape " + x.shape().text() + " for " + std::to_string(step.rows()) +
                     " rows; expected [rows, heads, head_dim] and an even number that ends within head_dim");
  const Tensor y = ctx.empty(x.shape());
  const auto each_row = [&](auto&& f) { parallel_for(ctx, x.rows(), x.row_size(), f); };
  if (DryRun* dry = ctx.dry()) {
    each_row([](int64_t, int64_t) {});
    dry->add(ctx, {.op = "rope", .inputs = {x}, .outputs = {y}, .spec = spec});
    if (ctx.tape() == nullptr) return y;  // angles are not needed
  }
  const Step::Angles& angles = step.angles(spec);
  const auto heads = static_cast<size_t>(x.dim(1)), head_dim = static_cast<size_t>(x.dim(2));
  const auto turning = static_cast<size_t>(spec.rotary_dim), half = turning / 2;
  const auto still = static_cast<size_t>(spec.first);
  {
    const auto scratch = ctx.frame();
    const bool wide = x.dtype() == DType::f64;
    const WideAngles in_double = wide ? widen(ctx, angles) : WideAngles{};
    if (ctx.dry() == nullptr)
      each_row([&](int64_t first, int64_t n) {
        for (int64_t r = first; r < first + n; ++r) {
          const size_t at = static_cast<size_t>(r) * half;
          if (still > 0) copy_row(x, y, r);
          each_rotation(heads, head_dim, still, [&](size_t n_heads, size_t d, size_t from) {
            if (wide) {
              rope_reference<double>(x.row<double>(r) + from, in_double.cos + at, in_double.sin + at, spec.layout, n_heads, d,
                                     turning, y.row<double>(r) + from);
            } else {
              kernels().rope(x.row<float>(r) + from, &angles.cos[at], &angles.sin[at], spec.layout, n_heads, d, turning,
                             y.row<float>(r) + from);
            }
          });
        }
      });
  }
  if (Tape* tape = ctx.tape()) tape->record(&rope_node_backward, RopeNode{x, y, &step, spec});
  return y;
}

}  // namespace vitrine
