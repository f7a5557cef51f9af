#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/reference/backward.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/softmax.h"
#include "kernels/table.h"
#include "ops/attention_keys.h"
#include "ops/elementwise.h"
#include "ops/every_sequence.h"
#include "ops/layout.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct StepwiseNode {
  Tensor q, k, v, z;
  Tensor scores, pattern, mixed;  // mixed: the pattern after hooks and dropout
  StepSequence s;
  AttentionSpec spec;
};

// Calls f(head, first query, queries): `strip` neighboring queries of a head at a time, shared among the threads.
template <class F>
void each_strip(Context& ctx, int64_t heads, int64_t rows, int64_t strip, F&& f) {
  const int64_t strips = ceil_div(rows, strip);
  ctx.run(heads * strips, [&](int64_t i, int) {
    const int64_t first = i % strips * strip;
    f(i / strips, first, std::min(strip, rows - first));
  });
}
template <class F>
void each_query(Context& ctx, int64_t heads, int64_t rows, F&& f) {
  each_strip(ctx, heads, rows, 1, [&](int64_t h, int64_t i, int64_t) { f(h, i); });
}

size_t size_of(int64_t n) { return static_cast<size_t>(n); }

// Keys of a row up to the last one that it looks at. A sum over these alone has the same bits however many keys a step has behind
// them: in one run over a text, in chunks, and a token at a time.
template <class T>
int64_t up_to_the_last(const T* scores, int64_t keys) {
  int64_t n = keys;
  while (n > 0 && scores[n - 1] == -std::numeric_limits<T>::infinity()) --n;
  return n > 0 ? n : keys;
}

// The share of a row's softmax that its head's sink takes.
template <class T>
T share_of_sink(const T* scores, int64_t n, T sink) {
  const auto log_sum_exp = of_type<T>(kernels().log_sum_exp, log_sum_exp_reference<double>);
  return 1 / (1 + std::exp(log_sum_exp(scores, size_of(n)) - sink));
}

template <class T>
T* cell(const Tensor& t, int64_t head, int64_t query) {  // row [head, query] of [head, query, key]
  return t.data<T>() + (head * t.dim(1) + query) * t.dim(2);
}

template <class T>
T* head_row(const Tensor& t, int64_t row, int64_t head) {  // of [row, head, component]; null of no tensor
  return t ? t.row<T>(row) + head * t.dim(2) : nullptr;
}

// Calls f(key/value head, head, query) for all, those that share a key/value head on one thread: its gradients belong to it.
template <class F>
void each_query_of_kv_head(Context& ctx, const StepwiseNode& n, F&& f) {
  const int64_t per_kv = n.q.dim(1) / n.k.dim(1);
  ctx.run(n.k.dim(1), [&](int64_t g, int) {
    for (int64_t h = g * per_kv; h < (g + 1) * per_kv; ++h)
      for (int64_t i = 0; i < n.s.rows; ++i) f(g, h, i);
  });
}

void mix_backward(Context& ctx, Tape& tape, const StepwiseNode& n) {
  const Tensor dz = tape.gradient(n.z);
  if (!dz) return;
  const Tensor dp = tape.accumulate(n.mixed), dv = tape.accumulate(n.v);
  visit_scalar(dz, [&](auto zero) {
    using T = decltype(zero);
    const int64_t first = n.s.first_row, keys = n.mixed.dim(2), stride = n.v.row_size();
    const size_t v_dim = size_of(n.v.dim(2));
    each_query_of_kv_head(ctx, n, [&](int64_t g, int64_t h, int64_t i) {
      const T *d = head_row<T>(dz, first + i, h), *p = cell<T>(n.mixed, h, i);
      T *const to = dp ? cell<T>(dp, h, i) : nullptr, *const dvalues = head_row<T>(dv, first, g);
      const T* const values = head_row<T>(n.v, first, g);
      for (int64_t j = 0; j < keys; ++j) {
        if (to != nullptr) to[j] += dot_reference(d, values + j * stride, v_dim);
        if (dvalues != nullptr && p[j] != T{0}) add_scaled_reference(d, p[j], v_dim, dvalues + j * stride);
      }
    });
  });
}

void pattern_backward(Context& ctx, Tape& tape, const StepwiseNode& n) {
  const Tensor dp = tape.gradient(n.pattern), ds = tape.accumulate(n.scores);
  if (!dp || !ds) return;
  const int64_t heads = n.pattern.dim(0), keys = n.pattern.dim(2);
  visit_scalar(dp, [&](auto zero) {
    using T = decltype(zero);
    each_query(ctx, heads, n.s.rows, [&](int64_t h, int64_t i) {
      softmax_backward<T>(cell<T>(n.pattern, h, i), cell<T>(dp, h, i), size_of(keys), cell<T>(ds, h, i));
    });
    if (n.spec.sinks == nullptr || n.spec.sinks->grad.data == nullptr) return;
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < n.s.rows; ++i) {
        const T along = dot_reference(cell<T>(n.pattern, h, i), cell<T>(dp, h, i), size_of(keys));
        static_cast<T*>(n.spec.sinks->grad.data)[h] -=
            along * share_of_sink(cell<T>(n.scores, h, i), keys, n.spec.sinks->at<T>(h));
      }
  });
}

void scores_backward(Context& ctx, Tape& tape, const StepwiseNode& n) {
  const Tensor ds = tape.gradient(n.scores);
  if (!ds) return;
  const Tensor dq = tape.accumulate(n.q), dk = tape.accumulate(n.k);
  visit_scalar(ds, [&](auto zero) {
    using T = decltype(zero);
    const int64_t first = n.s.first_row, stride = n.k.row_size();
    const size_t d = size_of(n.q.dim(2));
    const T cap = static_cast<T>(n.spec.softcap);
    each_query_of_kv_head(ctx, n, [&](int64_t g, int64_t h, int64_t i) {
      const KeyRange range = seen_by(n.s, n.spec, n.s.position + i);
      const T *from = cell<T>(ds, h, i), *score = cell<T>(n.scores, h, i), *q = head_row<T>(n.q, first + i, h);
      const T* const keys = head_row<T>(n.k, first, g);
      T *const dquery = head_row<T>(dq, first + i, h), *const dkeys = head_row<T>(dk, first, g);
      for (int64_t j = range.first; j < range.last; ++j) {
        const T t = cap != 0 ? score[j] / cap : T{0}, grad = from[j] * static_cast<T>(n.spec.scale) * ((1 - t) * (1 + t));
        if (dquery != nullptr) add_scaled_reference(keys + j * stride, grad, d, dquery);
        if (dkeys != nullptr) add_scaled_reference(q, grad, d, dkeys + j * stride);
      }
    });
  });
}

}  // namespace

template <class T>
void attention_stepwise(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Step& step,
                        std::span<const ShownSequence<T>> shown, const AttentionSpec& spec, const Tensor& z) {
  constexpr T kNothing = -std::numeric_limits<T>::infinity();
  constexpr int64_t kStrip = 16;
  const int64_t n_heads = q.dim(1), per_kv = n_heads / k.dim(1), d = q.dim(2), v_dim = v.dim(2);
  int64_t most_rows = 0, most_keys = 0;
  std::vector<StepwiseNode> nodes;
  for (const ShownSequence<T>& one : shown) {
    const StepSequence& s = step.sequences()[one.sequence];
    nodes.push_back({q, k, v, z, {}, {}, {}, s, spec});
    most_rows = std::max(most_rows, s.rows);
    most_keys = std::max(most_keys, s.position + s.rows);
  }
  const auto count = static_cast<int64_t>(nodes.size());
  if (count > 1 && ctx.tape() != nullptr)
    throw UsageError("attention: scores and patterns of several sequences cannot be seen together while a tape records");
  const int heard = ctx.listening_sequence();
  const bool listening = heard == kEverySequence || (count == 1 && static_cast<int>(shown[0].sequence) == heard);
  const auto hook = [&](std::string_view name, const Tensor& t) { return listening ? ctx.hook_of_sequence(name, t) : t; };
  const Shape one{n_heads, most_rows, most_keys};
  const auto make = [&] { return ctx.empty(count == 1 ? one : Shape{count, n_heads, most_rows, most_keys}); };
  const auto part = [&](const Tensor& all, int64_t i) { return count == 1 ? all : all.rows_view(i, 1).view(one); };
  // Each part is recorded before its hook: what a listener or dropout builds on it comes later on the tape, and where a constant
  // takes its place its gradient is never set.
  const auto each_node = [&](void (*backward)(Context&, Tape&, const StepwiseNode&), auto&& f) {
    for (int64_t i = 0; i < count; ++i) {
      StepwiseNode& node = nodes[static_cast<size_t>(i)];
      f(i, node, *shown[static_cast<size_t>(i)].source);
      if (Tape* tape = ctx.tape()) tape->record(backward, node);
    }
  };

  Tensor scores = make();
  each_node(&scores_backward, [&](int64_t at, StepwiseNode& node, const KeySource<T>& source) {
    const auto products = of_type<T>(kernels().set_products, set_products_reference<double>);
    const auto cap = of_type<T>(kernels().softcap, softcap_reference<double>);
    const StepSequence& s = node.s;
    node.scores = part(scores, at);
    // Queries that a shorter sequence lacks see nothing.
    const auto seen = [&](int64_t i) { return i < s.rows ? seen_by(s, spec, s.position + i) : KeyRange{0, 0}; };
    each_strip(ctx, n_heads, most_rows, kStrip, [&](int64_t h, int64_t first, int64_t n) {
      const int64_t rows = std::min(n, s.rows - first), end = rows > 0 ? seen(first + rows - 1).last : 0;
      for (int64_t from = seen(first).first, to; from < end; from = to) {
        const int64_t block = from / kKeys;
        to = std::min(end, (block + 1) * kKeys);
        products(q.row<T>(s.first_row + first) + h * d, size_of(q.row_size()), size_of(rows),
                 source.keys(block, h / per_kv) + from % kKeys, kKeyBlock, size_of(d), size_of(to - from),
                 static_cast<T>(spec.scale), cell<T>(node.scores, h, first) + from, size_of(most_keys));
      }
      const T slope = spec.alibi ? static_cast<T>(alibi_slope(h, n_heads)) : T{0};
      for (int64_t i = first; i < first + n; ++i) {
        T* row = cell<T>(node.scores, h, i);
        const auto [begin, last] = seen(i);
        if (spec.softcap != 0) cap(row + begin, static_cast<T>(spec.softcap), size_of(last - begin), row + begin);
        if (spec.alibi) add_slope(row, begin, last, s.position + i, slope);
        std::fill(row, row + begin, kNothing);
        std::fill(row + last, row + most_keys, kNothing);
      }
    });
  });
  scores = hook("hook_attn_scores", scores);

  Tensor pattern = make();
  each_node(&pattern_backward, [&](int64_t at, StepwiseNode& node, const KeySource<T>&) {
    const auto softmax = of_type<T>(kernels().softmax, softmax_reference<double>);
    node.scores = part(scores, at);
    node.pattern = part(pattern, at);
    each_query(ctx, n_heads, most_rows, [&](int64_t h, int64_t i) {
      T* const line = cell<T>(node.pattern, h, i);
      const T* const row = cell<T>(node.scores, h, i);
      const int64_t n = i < node.s.rows ? up_to_the_last(row, node.s.position + node.s.rows) : 0;
      softmax(row, size_of(n), line);
      std::fill(line + n, line + most_keys, T{0});
      if (spec.sinks == nullptr) return;
      const T kept = 1 - share_of_sink(row, n, spec.sinks->at<T>(h));
      for (int64_t j = 0; j < n; ++j) line[j] *= kept;
    });
  });
  pattern = hook("hook_pattern", pattern);

  each_node(&mix_backward, [&](int64_t at, StepwiseNode& node, const KeySource<T>& source) {
    const auto add_products = of_type<T>(kernels().add_products, add_products_reference<double>);
    const StepSequence& s = node.s;
    node.mixed = dropout_of_sequence(ctx, part(pattern, at), spec.dropout, spec.dropout_site, s.first_row);
    // A replaced pattern may look where the mask forbids, so every key that still exists is read; what lies before the first
    // and after the last key that a query looks at is not, so that no later token's infinities reach an earlier one as NaN.
    const int64_t oldest = s.cache == nullptr ? 0 : seen_by(s, spec, s.position).first, keys = s.position + s.rows;
    each_query(ctx, n_heads, s.rows, [&](int64_t h, int64_t i) {
      T* out = head_row<T>(z, s.first_row + i, h);
      const T* p = cell<T>(node.mixed, h, i);
      std::fill(out, out + v_dim, T{0});
      int64_t from = oldest, end = keys;
      while (from < end && p[from] == T{0}) ++from;
      while (end > from && p[end - 1] == T{0}) --end;
      for (int64_t to; from < end; from = to) {
        const int64_t block = from / kKeys;
        to = std::min(end, (block + 1) * kKeys);
        add_products(p + from, size_of(keys), 1, source.values(block, h / per_kv) + size_of(from % kKeys) * source.v_stride(),
                     source.v_stride(), size_of(to - from), size_of(v_dim), out, size_of(z.row_size()));
      }
    });
  });
}

template void attention_stepwise<float>(Context&, const Tensor&, const Tensor&, const Tensor&, const Step&,
                                        std::span<const ShownSequence<float>>, const AttentionSpec&, const Tensor&);
template void attention_stepwise<double>(Context&, const Tensor&, const Tensor&, const Tensor&, const Step&,
                                         std::span<const ShownSequence<double>>, const AttentionSpec&, const Tensor&);

}  // namespace vitrine
