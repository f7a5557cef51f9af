#include "ops/embed.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/table.h"
#include "ops/dry_run.h"
#include "ops/low_rank.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct EmbedNode {
  Tensor y;
  const int32_t* ids;
  const Weight* w;
};

void embed_backward(Context& ctx, Tape& tape, const EmbedNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  if (node.w->adapter != nullptr) low_rank_rows_backward(ctx, {node.ids, static_cast<size_t>(dy.rows())}, *node.w->adapter, dy);
  if (node.w->grad.data == nullptr) return;
  zero_if_unset(*node.w);
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    auto* dw = static_cast<T*>(node.w->grad.data);
    // Threads share columns: an id may come in several rows, which are added in order.
    constexpr int64_t kColumns = 64;
    const int64_t d = dy.row_size(), strips = (d + kColumns - 1) / kColumns;
    const auto strip = [&](int64_t chunk, int) {
      const int64_t first = chunk * kColumns, n = std::min(kColumns, d - first);
      for (int64_t r = 0; r < dy.rows(); ++r) {
        T* to = dw + static_cast<size_t>(node.ids[r]) * node.w->grad.stride + static_cast<size_t>(first);
        const T* from = dy.row<T>(r) + first;
        if constexpr (std::is_same_v<T, float>) {
          kernels().add(to, from, static_cast<size_t>(n), to);
        } else {
          for (int64_t i = 0; i < n; ++i) to[i] += from[i];
        }
      }
    };
    ctx.run(strips, dy.count() > 32768, strip);
  });
}

void check_ids(std::span<const int32_t> ids, const Weight& w, const char* what) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= w.out)
      throw InputError(std::string(what) + " " + std::to_string(ids[i]) + " at place " + std::to_string(i) + " is outside " +
                       w.name + ", which has " + std::to_string(w.out) + " rows (0 to " + std::to_string(w.out - 1) + ")");
}

Tensor look_up(Context& ctx, const char* op, std::span<const int32_t> ids, const Weight& w) {
  VITRINE_CHECK(!w.by_columns, "an embedding is stored one row per id");
  const Tensor y = ctx.empty({static_cast<int64_t>(ids.size()), w.in});
  parallel_for(ctx, y.rows(), w.in, [&](int64_t first, int64_t n) {
    for (int64_t r = first; r < first + n; ++r) {
      const int32_t id = ids[static_cast<size_t>(r)];
      if (y.dtype() == DType::f32) {
        kernels().widen[static_cast<size_t>(w.dtype)](w.stored_row(id), static_cast<size_t>(w.in), y.row<float>(r));
      } else {
        for (int64_t i = 0; i < w.in; ++i) y.row<double>(r)[i] = w.at<double>(id, i);
      }
    }
  });
  if (w.adapter != nullptr) low_rank_rows(ctx, ids, w, *w.adapter, y);
  if (!ctx.row_adapters.empty()) add_row_adapters(ctx, ids, w, y);
  if (Tape* tape = ctx.tape()) {  // the caller's ids may be gone when backward comes
    tape->record(&embed_backward, EmbedNode{y, tape->keep(ids), &w});
  }
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = op, .outputs = {y}, .weights = {&w}, .rows_read = y.rows()});
  return y;
}

struct TakeNode {
  Tensor x, y;
  const int64_t* rows;
};

struct JoinNode {
  Tensor x, more, y;
};

void join_heads_backward(Context& ctx, Tape& tape, const JoinNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tensor dx = tape.accumulate(node.x), dmore = tape.accumulate(node.more);
  const int64_t heads = node.x.dim(1), a = node.x.dim(2), b = node.more.dim(2), each = node.more.dim(1) == 1 ? 0 : b;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, dy.rows(), dy.row_size(), [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r)
        for (int64_t h = 0; h < heads; ++h) {
          const T* const from = dy.row<T>(r) + h * (a + b);
          for (int64_t i = 0; i < a && dx; ++i) dx.row<T>(r)[h * a + i] += from[i];
          for (int64_t i = 0; i < b && dmore; ++i) dmore.row<T>(r)[h * each + i] += from[a + i];
        }
    });
  });
  tape.release(node.y);
}

struct ColumnsNode {
  Tensor x, y;
  int64_t first, n, width;
};

void take_columns_backward(Context& ctx, Tape& tape, const ColumnsNode& node) {
  const Tensor dy = tape.gradient(node.y), dx = tape.accumulate(node.x);
  if (!dy || !dx) return;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, dy.count() / node.n, node.n, [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r)
        for (int64_t j = 0; j < node.n; ++j) dx.data<T>()[r * node.width + node.first + j] += dy.data<T>()[r * node.n + j];
    });
  });
  tape.release(node.y);
}

void take_backward(Context&, Tape& tape, const TakeNode& node) {
  const Tensor dy = tape.gradient(node.y), dx = tape.accumulate(node.x);
  if (!dy || !dx) return;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < dy.rows(); ++r)
      for (int64_t i = 0; i < dy.row_size(); ++i) dx.row<T>(node.rows[r])[i] += dy.row<T>(r)[i];
  });
}

}  // namespace

Tensor embed(Context& ctx, std::span<const int32_t> tokens, const Weight& W_E) {
  if (ctx.dry() == nullptr) check_ids(tokens, W_E, "token");
  return look_up(ctx, "embed", tokens, W_E);
}

Tensor embed_positions(Context& ctx, const Step& step, const Weight& W_pos) {
  if (ctx.dry() == nullptr) check_ids(step.positions(), W_pos, "position");
  return look_up(ctx, "embed_positions", step.positions(), W_pos);
}

Tensor sinusoidal_positions(Context& ctx, const Step& step, int64_t d, SinusoidLayout layout) {
  const Tensor y = ctx.empty({step.rows(), d});
  visit_scalar(y, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, step.rows(), d, [&](int64_t begin, int64_t n) {
      for (int64_t r = begin; r < begin + n; ++r)
        for (int64_t i = 0; 2 * i < d; ++i) {
          const double angle =
              step.positions()[static_cast<size_t>(r)] / std::pow(10000.0, static_cast<double>(2 * i) / static_cast<double>(d));
          const int64_t a = layout == SinusoidLayout::pairs ? 2 * i : i,
                        b = layout == SinusoidLayout::pairs ? 2 * i + 1 : i + (d + 1) / 2;
          y.row<T>(r)[a] = static_cast<T>(std::sin(angle));
          if (b < d) y.row<T>(r)[b] = static_cast<T>(std::cos(angle));
        }
    });
  });
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "sinusoidal_positions", .outputs = {y}, .spec = layout});
  return y;
}

Tensor take_rows(Context& ctx, const Tensor& x, std::span<const int64_t> rows) {
  const Tensor y = ctx.empty({static_cast<int64_t>(rows.size()), x.row_size()});
  const size_t bytes = row_bytes(x.dtype(), static_cast<size_t>(x.row_size()));
  for (const int64_t row : rows) VITRINE_CHECK(row >= 0 && row < x.rows(), "a row that is taken exists");
  ctx.run(y.rows(), false, [&](int64_t r, int) {
    const auto from = static_cast<size_t>(rows[static_cast<size_t>(r)]);
    std::memcpy(static_cast<std::byte*>(y.raw()) + static_cast<size_t>(r) * bytes,
                static_cast<const std::byte*>(x.raw()) + from * bytes, bytes);
  });
  if (Tape* tape = ctx.tape()) {
    tape->record(&take_backward, TakeNode{x, y, tape->keep(rows)});
  }
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "take_rows", .inputs = {x}, .outputs = {y}});
  return y;
}

Tensor take_columns(Context& ctx, const Tensor& x, int64_t first, int64_t n) {
  const int rank = x.shape().rank();
  const int64_t width = x.dim(rank - 1);
  if (rank < 2 || rank > 3 || first < 0 || n <= 0 || first + n > width)
    throw ShapeError("take_columns: " + std::to_string(n) + " columns from " + std::to_string(first) + " of x " +
                     x.shape().text() + "; expected them inside its last axis, and two or three axes");
  const Tensor y = ctx.empty(rank == 2 ? Shape{x.rows(), n} : Shape{x.rows(), x.dim(1), n});
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, y.count() / n, n, [&](int64_t begin, int64_t rows) {
      for (int64_t r = begin; r < begin + rows; ++r)
        std::memcpy(y.data<T>() + r * n, x.data<T>() + r * width + first, static_cast<size_t>(n) * sizeof(T));
    });
  });
  if (Tape* tape = ctx.tape()) tape->record(&take_columns_backward, ColumnsNode{x, y, first, n, width});
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "take_columns", .inputs = {x}, .outputs = {y}});
  return y;
}

Tensor join_heads(Context& ctx, const Tensor& x, const Tensor& more) {
  if (x.shape().rank() != 3 || more.shape().rank() != 3 || x.rows() != more.rows() ||
      (more.dim(1) != 1 && more.dim(1) != x.dim(1)))
    throw ShapeError("join_heads: " + more.shape().text() + " behind " + x.shape().text() +
                     "; expected [rows, heads, size] twice, with as many heads or one");
  const int64_t heads = x.dim(1), a = x.dim(2), b = more.dim(2), each = more.dim(1) == 1 ? 0 : b;
  const Tensor y = ctx.empty({x.rows(), heads, a + b});
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, y.rows(), y.row_size(), [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r)
        for (int64_t h = 0; h < heads; ++h) {
          T* const to = y.row<T>(r) + h * (a + b);
          std::copy_n(x.row<T>(r) + h * a, a, to);
          std::copy_n(more.row<T>(r) + h * each, b, to + a);
        }
    });
  });
  if (Tape* tape = ctx.tape()) tape->record(&join_heads_backward, JoinNode{x, more, y});
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "join_heads", .inputs = {x, more}, .outputs = {y}});
  return y;
}

}  // namespace vitrine
