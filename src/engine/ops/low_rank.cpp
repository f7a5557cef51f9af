#include "ops/low_rank.h"

#include <algorithm>

#include "kernels/table.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

// h [rows, rank] = scale · x Aᵀ. The scale is here, where rows are short; so dB = dyᵀ h needs none.
void inner(Context& ctx, const Tensor& x, const LowRank& adapter, const Tensor& h, double times = 1) {
  linear_part(ctx, x, adapter.A, 0, adapter.A.out, h.raw(), adapter.A.out);
  visit_scalar(h, [&](auto zero) {
    using T = decltype(zero);
    T* const numbers = h.data<T>();
    ctx.run(h.count(), false, [&](int64_t i, int) { numbers[i] *= static_cast<T>(adapter.scale * times); });
  });
}

// y += h Bᵀ
void outer(Context& ctx, const Tensor& h, const Weight& B, void* y, int64_t y_stride) {
  visit_scalar(h, [&](auto zero) {
    using T = decltype(zero);
    const auto scratch = ctx.frame();
    T* const sums = ctx.scratch<T>(static_cast<size_t>(h.rows() * B.out));
    linear_part(ctx, h, B, 0, B.out, sums, B.out);
    parallel_for(ctx, h.rows(), B.out, [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r) {
        T* const to = static_cast<T*>(y) + r * y_stride;
        const T* const from = sums + r * B.out;
        if constexpr (std::is_same_v<T, float>) {
          kernels().add(to, from, static_cast<size_t>(B.out), to);
        } else {
          for (int64_t j = 0; j < B.out; ++j) to[j] += from[j];
        }
      }
    });
  });
}

// Through both products; dx may be empty, and with `add` false it is set.
void backward(Context& ctx, const Tensor& x, const Tensor& h, const LowRank& adapter, const void* dy, int64_t dy_stride,
              const Tensor& dx, bool add) {
  visit_scalar(h, [&](auto zero) {
    using T = decltype(zero);
    const auto scratch = ctx.frame();
    const Tensor dh(ctx.scratch<T>(static_cast<size_t>(h.count())), h.dtype(), h.shape());
    linear_part_backward(ctx, h, adapter.B, 0, adapter.B.out, dy, dy_stride, dh, false);
    for (int64_t i = 0; i < dh.count(); ++i) dh.data<T>()[i] *= static_cast<T>(adapter.scale);
    linear_part_backward(ctx, x, adapter.A, 0, adapter.A.out, dh.raw(), adapter.A.out, dx, add);
  });
}

struct LowRankNode {
  Tensor x, h, y;
  const LowRank* adapter;
};

// y's gradient stays: the node of the product beside it, which ran before, reads it next and releases it.
void low_rank_backward(Context& ctx, Tape& tape, const LowRankNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tape::Sum dx = tape.contribute(node.x);
  backward(ctx, node.x, node.h, *node.adapter, dy.raw(), dy.row_size(), dx.to, !dx.fresh);
}

}  // namespace

void add_low_rank(Context& ctx, const Tensor& x, const LowRank& adapter, const Tensor& y) {
  VITRINE_CHECK(adapter.A.in == x.row_size() && adapter.B.in == adapter.A.out && adapter.B.out == y.row_size(),
                "an adapter has the sizes of the matrix it stands beside");
  const auto scratch = ctx.frame();  // with a tape, x and h are the tape's
  const Tensor dropped = dropout(ctx, x, adapter.dropout, adapter.site);
  const Tensor h = ctx.empty({x.rows(), adapter.A.out});
  inner(ctx, dropped, adapter, h);
  outer(ctx, h, adapter.B, y.raw(), y.row_size());
  if (Tape* tape = ctx.tape()) tape->record(&low_rank_backward, LowRankNode{dropped, h, y, &adapter});
}

void low_rank_part(Context& ctx, const Tensor& x, const LowRank& adapter, void* y, int64_t y_stride, double times) {
  visit_scalar(x, [&](auto zero) {
    const auto scratch = ctx.frame();
    const auto count = static_cast<size_t>(x.rows() * adapter.A.out);
    const Tensor h(ctx.scratch<decltype(zero)>(count), x.dtype(), {x.rows(), adapter.A.out});
    inner(ctx, x, adapter, h, times);
    outer(ctx, h, adapter.B, y, y_stride);
  });
}

void low_rank_part_backward(Context& ctx, const Tensor& x, const LowRank& adapter, const void* dy, int64_t dy_stride,
                            const Tensor& dx) {
  visit_scalar(x, [&](auto zero) {
    const auto scratch = ctx.frame();
    const auto count = static_cast<size_t>(x.rows() * adapter.A.out);
    const Tensor h(ctx.scratch<decltype(zero)>(count), x.dtype(), {x.rows(), adapter.A.out});
    inner(ctx, x, adapter, h);
    backward(ctx, x, h, adapter, dy, dy_stride, dx, true);
  });
}

void add_row_adapters(Context& ctx, const Tensor& x, const Weight& w, const Tensor& y) {
  each_row_adapter(ctx, w, [&](const LowRank& part, const RowAdapter& which) {
    if (ctx.tape() != nullptr) throw UsageError("adapters of some rows are not differentiated; put the adapter at the weights");
    const int64_t rows = which.rows == RowAdapter::kAllRows ? x.rows() : which.rows;
    VITRINE_CHECK(which.first >= 0 && rows >= 0 && which.first + rows <= x.rows(), "an adapter's rows are rows of the step");
    if (rows == 0) return;
    const Tensor to = y.rows_view(which.first, rows);
    low_rank_part(ctx, x.rows_view(which.first, rows), part, to.raw(), to.row_size(), which.scale);
  });
}

void add_merged(const LowRank& adapter, int64_t out, float* row) {
  for (int64_t k = 0; k < adapter.A.out; ++k)
    kernels().add_scaled(reinterpret_cast<const float*>(adapter.A.stored_row(k)),
                         static_cast<float>(adapter.scale * adapter.B.at<double>(out, k)), static_cast<size_t>(adapter.A.in),
                         row);
}

}  // namespace vitrine
