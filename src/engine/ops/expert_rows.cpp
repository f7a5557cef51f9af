#include "ops/expert_rows.h"

#include <algorithm>

#include "kernels/table.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

// y[i] = x[from[i] / shared]: row r of x goes to the places to[r · shared], …, to[r · shared + shared - 1].
struct Moved {
  Tensor x, y;
  const int32_t *from, *to;
  int64_t shared;
};

template <class T>
void add_row(const T* x, int64_t d, T* y) {
  if constexpr (std::is_same_v<T, float>) {
    kernels().add(y, x, static_cast<size_t>(d), y);
  } else {
    for (int64_t i = 0; i < d; ++i) y[i] += x[i];
  }
}
template <class T>
void add_row(const T* x, T factor, int64_t d, T* y) {
  if constexpr (std::is_same_v<T, float>) {
    kernels().add_scaled(x, factor, static_cast<size_t>(d), y);
  } else {
    for (int64_t i = 0; i < d; ++i) y[i] += factor * x[i];
  }
}
template <class T>
T dot(const T* a, const T* b, int64_t d) {
  if constexpr (std::is_same_v<T, float>) {
    return kernels().dot(a, b, static_cast<size_t>(d));
  } else {
    T sum = 0;
    for (int64_t i = 0; i < d; ++i) sum += a[i] * b[i];
    return sum;
  }
}

void moved_backward(Context& ctx, Tape& tape, const Moved& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  if (const Tensor dx = tape.accumulate(node.x)) {
    visit_scalar(dy, [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = dy.rows() / node.shared, d = dy.row_size();
      T* const to = dx.data<T>();
      parallel_for(ctx, rows, node.shared * d, [&](int64_t first, int64_t n) {
        for (int64_t r = first; r < first + n; ++r)
          for (int64_t k = 0; k < node.shared; ++k) add_row<T>(dy.row<T>(node.to[r * node.shared + k]), d, to + r * d);
      });
    });
  }
  tape.release(node.y);
}

// d: elements of one moved row. to: the inverse of from.
Tensor moved(Context& ctx, const Tensor& x, const int32_t* from, const int32_t* to, int64_t shared, int64_t d,
             const Shape& shape) {
  const Tensor y = ctx.empty(shape);
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const int64_t n_moved = y.count() / std::max<int64_t>(d, 1);
    parallel_for(ctx, n_moved, d, [&](int64_t first, int64_t n) {
      for (int64_t i = first; i < first + n; ++i) std::copy_n(x.data<T>() + from[i] / shared * d, d, y.data<T>() + i * d);
    });
  });
  if (Tape* tape = ctx.tape()) {
    const Tensor rows = y.view({y.count() / d, d});
    tape->record(&moved_backward, Moved{x, rows, from, to, shared});
  }
  return y;
}

struct Summed {
  Tensor sorted, weights, y;
  ExpertRows rows;
};

void summed_backward(Context& ctx, Tape& tape, const Summed& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tape::Sum dsorted = tape.contribute(node.sorted);
  const Tensor dweights = tape.accumulate(node.weights);
  const int64_t per_row = node.rows.per_row, d = dy.row_size();
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, node.rows.rows, per_row * d, [&](int64_t first, int64_t n) {
      for (int64_t choice = first * per_row; choice < (first + n) * per_row; ++choice) {
        const int64_t place = node.rows.place[choice];
        const T* const dout = dy.row<T>(choice / per_row);
        if (dsorted) {
          T* const to = dsorted.to.data<T>() + place * d;
          if (dsorted.fresh) std::fill_n(to, d, T{0});
          add_row<T>(dout, node.weights.data<T>()[choice], d, to);
        }
        if (dweights) dweights.data<T>()[choice] += dot<T>(node.sorted.row<T>(place), dout, d);
      }
    });
  });
  tape.release(node.y);
}

}  // namespace

int32_t* room_for_numbers(Context& ctx, int64_t n) {
  const size_t bytes = static_cast<size_t>(n) * sizeof(int32_t);
  Arena& arena = ctx.tape() != nullptr ? ctx.tape()->arena() : ctx.arena();
  return static_cast<int32_t*>(arena.allocate(bytes));
}

ExpertRows sort_by_expert(Context& ctx, const int32_t* expert, int64_t rows, int64_t per_row, int64_t experts) {
  ExpertRows sorted{rows, per_row, experts, expert};
  const int64_t choices = sorted.choices();
  int32_t *const first = room_for_numbers(ctx, experts + 1), *const choice = room_for_numbers(ctx, choices),
                 *const place = room_for_numbers(ctx, choices);
  sorted.first = first;
  sorted.choice = choice;
  sorted.place = place;
  if (ctx.dry() != nullptr) return sorted;
  std::fill_n(first, experts + 1, 0);
  for (int64_t i = 0; i < choices; ++i) ++first[expert[i] + 1];
  for (int64_t e = 0; e < experts; ++e) first[e + 1] += first[e];
  for (int64_t i = 0; i < choices; ++i) place[i] = first[expert[i]]++;  // an expert's rows keep their order
  for (int64_t e = experts; e > 0; --e) first[e] = first[e - 1];
  first[0] = 0;
  for (int64_t i = 0; i < choices; ++i) choice[place[i]] = static_cast<int32_t>(i);
  return sorted;
}

Tensor sorted_rows(Context& ctx, const Tensor& x, const ExpertRows& rows) {
  return moved(ctx, x, rows.choice, rows.place, rows.per_row, x.row_size(), {rows.choices(), x.row_size()});
}

Tensor by_rows(Context& ctx, const Tensor& sorted, const ExpertRows& rows) {
  const int64_t d = sorted.row_size();
  return moved(ctx, sorted, rows.place, rows.choice, 1, d, {rows.rows, rows.per_row, d});
}

Tensor by_experts(Context& ctx, const Tensor& of_rows, const ExpertRows& rows) {
  const int64_t d = of_rows.row_size() / rows.per_row;
  return moved(ctx, of_rows, rows.choice, rows.place, 1, d, {rows.choices(), d});
}

Tensor weighted_sum(Context& ctx, const Tensor& sorted, const Tensor& weights, const ExpertRows& rows) {
  const int64_t d = sorted.row_size();
  const Tensor y = ctx.zeros({rows.rows, d});
  visit_scalar(sorted, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, rows.rows, rows.per_row * d, [&](int64_t first, int64_t n) {
      for (int64_t choice = first * rows.per_row; choice < (first + n) * rows.per_row; ++choice)
        add_row<T>(sorted.row<T>(rows.place[choice]), weights.data<T>()[choice], d, y.row<T>(choice / rows.per_row));
    });
  });
  if (Tape* tape = ctx.tape()) tape->record(&summed_backward, Summed{sorted, weights, y, rows});
  return y;
}

}  // namespace vitrine
