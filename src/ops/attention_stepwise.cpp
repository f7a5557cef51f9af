#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "kernels/reference/activation.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/softmax.h"
#include "kernels/table.h"
#include "ops/attention_keys.h"
#include "ops/elementwise.h"
#include "ops/every_sequence.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct StepwiseNode {
  Tensor q, k, v, z;
  Tensor scores, pattern, mixed;  // mixed: the pattern after hooks and dropout
  StepSequence s;
  AttentionSpec spec;
};

// Calls f(head, query) for all, shared among the threads.
template <class F>
void each_query(Context& ctx, int64_t heads, int64_t rows, F&& f) {
  ctx.run(heads * rows, [&](int64_t i, int) { f(i / rows, i % rows); });
}

// Calls f(head, first query, queries): a few neighbouring queries of a head at a time.
template <class F>
void each_strip(Context& ctx, int64_t heads, int64_t rows, F&& f) {
  constexpr int64_t kStrip = 16;
  const int64_t strips = (rows + kStrip - 1) / kStrip;
  ctx.run(heads * strips, [&](int64_t i, int) {
    const int64_t first = i % strips * kStrip;
    f(i / strips, first, std::min(kStrip, rows - first));
  });
}

// The kernels in f32, the plain loops in double.
template <class T>
void set_products(const T* a, int64_t a_stride, int64_t rows, const T* b, int64_t b_stride, int64_t depth, int64_t n, T factor,
                  T* c, int64_t c_stride) {
  const auto size = [](int64_t value) { return static_cast<size_t>(value); };
  if constexpr (std::is_same_v<T, float>) {
    kernels().set_products(a, size(a_stride), size(rows), b, size(b_stride), size(depth), size(n), factor, c, size(c_stride));
  } else {
    set_products_reference(a, size(a_stride), size(rows), b, size(b_stride), size(depth), size(n), factor, c, size(c_stride));
  }
}
template <class T>
void add_products(const T* a, int64_t a_stride, int64_t rows, const T* b, int64_t b_stride, int64_t depth, int64_t n, T* c,
                  int64_t c_stride) {
  const auto size = [](int64_t value) { return static_cast<size_t>(value); };
  if constexpr (std::is_same_v<T, float>) {
    kernels().add_products(a, size(a_stride), size(rows), b, size(b_stride), size(depth), size(n), c, size(c_stride));
  } else {
    add_products_reference(a, size(a_stride), size(rows), b, size(b_stride), size(depth), size(n), c, size(c_stride));
  }
}
template <class T>
void cap_row(T* row, T cap, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    kernels().softcap(row, cap, static_cast<size_t>(n), row);
  } else {
    softcap_reference(row, cap, static_cast<size_t>(n), row);
  }
}
template <class T>
void softmax_row(const T* x, int64_t n, T* y) {
  if constexpr (std::is_same_v<T, float>) {
    kernels().softmax(x, static_cast<size_t>(n), y);
  } else {
    softmax_reference(x, static_cast<size_t>(n), y);
  }
}

// Keys of a row up to the last one that it looks at. A sum over these alone has the same bits however many keys a step has behind
// them: in one run over a text, in chunks, and a token at a time.
template <class T>
int64_t up_to_the_last(const T* scores, int64_t keys) {
  int64_t n = keys;
  while (n > 0 && scores[n - 1] == -std::numeric_limits<T>::infinity()) --n;
  return n > 0 ? n : keys;
}

template <class T>
T log_sum_exp(const T* x, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    return kernels().log_sum_exp(x, static_cast<size_t>(n));
  } else {
    return log_sum_exp_reference(x, static_cast<size_t>(n));
  }
}
// The share of a row's softmax that its head's sink takes.
template <class T>
T share_of_sink(const T* scores, int64_t n, T sink) {
  return 1 / (1 + std::exp(log_sum_exp(scores, n) - sink));
}

template <class T>
T* cell(const Tensor& t, int64_t head, int64_t query) {  // row [head, query] of [head, query, key]
  return t.data<T>() + (head * t.dim(1) + query) * t.dim(2);
}

void mix_backward(Context& ctx, Tape& tape, const StepwiseNode& n) {
  const Tensor dz = tape.gradient(n.z);
  if (!dz) return;
  const Tensor dp = tape.accumulate(n.mixed), dv = tape.accumulate(n.v);
  const int64_t per_kv = n.q.dim(1) / n.v.dim(1), v_dim = n.v.dim(2);
  visit_scalar(dz, [&](auto zero) {
    using T = decltype(zero);
    ctx.run(n.v.dim(1), [&](int64_t g, int) {
      for (int64_t h = g * per_kv; h < (g + 1) * per_kv; ++h)
        for (int64_t i = 0; i < n.s.rows; ++i) {
          const T* d = dz.row<T>(n.s.first_row + i) + h * v_dim;
          for (int64_t j = 0; j < n.mixed.dim(2); ++j) {
            const T* value = n.v.row<T>(n.s.first_row + j) + g * v_dim;
            T* dvalue = dv ? dv.row<T>(n.s.first_row + j) + g * v_dim : nullptr;
            const T p = cell<T>(n.mixed, h, i)[j];
            T dot = 0;
            for (int64_t c = 0; c < v_dim; ++c) dot += d[c] * value[c];
            if (dp) cell<T>(dp, h, i)[j] += dot;
            for (int64_t c = 0; dvalue != nullptr && p != T{0} && c < v_dim; ++c) dvalue[c] += p * d[c];
          }
        }
    });
  });
}

void pattern_backward(Context& ctx, Tape& tape, const StepwiseNode& n) {
  const Tensor dp = tape.gradient(n.pattern), ds = tape.accumulate(n.scores);
  if (!dp || !ds) return;
  visit_scalar(dp, [&](auto zero) {
    using T = decltype(zero);
    each_query(ctx, n.pattern.dim(0), n.s.rows, [&](int64_t h, int64_t i) {
      softmax_backward<T>(cell<T>(n.pattern, h, i), cell<T>(dp, h, i), static_cast<size_t>(n.pattern.dim(2)), cell<T>(ds, h, i));
    });
    if (n.spec.sinks == nullptr || n.spec.sinks->grad.data == nullptr) return;
    const int64_t keys = n.pattern.dim(2);
    for (int64_t h = 0; h < n.pattern.dim(0); ++h)
      for (int64_t i = 0; i < n.s.rows; ++i) {
        T along = 0;
        for (int64_t j = 0; j < keys; ++j) along += cell<T>(n.pattern, h, i)[j] * cell<T>(dp, h, i)[j];
        static_cast<T*>(n.spec.sinks->grad.data)[h] -=
            along * share_of_sink(cell<T>(n.scores, h, i), keys, n.spec.sinks->at<T>(h));
      }
  });
}

void scores_backward(Context& ctx, Tape& tape, const StepwiseNode& n) {
  const Tensor ds = tape.gradient(n.scores);
  if (!ds) return;
  const Tensor dq = tape.accumulate(n.q), dk = tape.accumulate(n.k);
  const int64_t per_kv = n.q.dim(1) / n.k.dim(1), d = n.q.dim(2);
  visit_scalar(ds, [&](auto zero) {
    using T = decltype(zero);
    ctx.run(n.k.dim(1), [&](int64_t g, int) {
      for (int64_t h = g * per_kv; h < (g + 1) * per_kv; ++h)
        for (int64_t i = 0; i < n.s.rows; ++i) {
          const KeyRange range = seen_by(n.s, n.spec, n.s.position + i);
          const T* q = n.q.row<T>(n.s.first_row + i) + h * d;
          for (int64_t j = range.first; j < range.last; ++j) {
            T grad = cell<T>(ds, h, i)[j] * static_cast<T>(n.spec.scale);
            if (n.spec.softcap != 0) {
              const T t = cell<T>(n.scores, h, i)[j] / static_cast<T>(n.spec.softcap);
              grad *= (1 - t) * (1 + t);
            }
            const T* key = n.k.row<T>(n.s.first_row + j) + g * d;
            for (int64_t c = 0; dq && c < d; ++c) (dq.row<T>(n.s.first_row + i) + h * d)[c] += grad * key[c];
            for (int64_t c = 0; dk && c < d; ++c) (dk.row<T>(n.s.first_row + j) + g * d)[c] += grad * q[c];
          }
        }
    });
  });
}

}  // namespace

template <class T>
void attention_stepwise(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Step& step,
                        std::span<const ShownSequence<T>> shown, const AttentionSpec& spec, const Tensor& z) {
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
  const auto each_node = [&](auto&& f) {
    for (int64_t i = 0; i < count; ++i) f(i, nodes[static_cast<size_t>(i)], *shown[static_cast<size_t>(i)].source);
  };
  // Of a shorter sequence, the queries and keys that it has not.
  const auto fill_rest = [&](const Tensor& t, const StepSequence& s, T value) {
    const int64_t keys = s.position + s.rows;
    if (s.rows == most_rows && keys == most_keys) return;
    each_query(ctx, n_heads, most_rows, [&](int64_t h, int64_t i) {
      std::fill(cell<T>(t, h, i) + (i < s.rows ? keys : 0), cell<T>(t, h, i) + most_keys, value);
    });
  };

  Tensor scores = make();
  each_node([&](int64_t at, StepwiseNode& node, const KeySource<T>& source) {
    const StepSequence& s = node.s;
    const int64_t keys = s.position + s.rows;
    node.scores = part(scores, at);
    fill_rest(node.scores, s, -std::numeric_limits<T>::infinity());
    each_strip(ctx, n_heads, s.rows, [&](int64_t h, int64_t first, int64_t n) {
      const KeyRange all{seen_by(s, spec, s.position + first).first, seen_by(s, spec, s.position + first + n - 1).last};
      for (int64_t block = all.first / kKeys; block * kKeys < all.last; ++block) {
        const int64_t from = std::max(all.first, block * kKeys), to = std::min(all.last, (block + 1) * kKeys);
        set_products(q.row<T>(s.first_row + first) + h * d, q.row_size(), n,
                     source.keys(block, h / per_kv) + from - block * kKeys, kKeys, d, to - from, static_cast<T>(spec.scale),
                     cell<T>(node.scores, h, first) + from, most_keys);
      }
      for (int64_t i = first; i < first + n; ++i) {
        T* row = cell<T>(node.scores, h, i);
        const KeyRange range = seen_by(s, spec, s.position + i);
        if (spec.softcap != 0) cap_row(row + range.first, static_cast<T>(spec.softcap), range.last - range.first);
        std::fill(row, row + range.first, -std::numeric_limits<T>::infinity());
        std::fill(row + range.last, row + keys, -std::numeric_limits<T>::infinity());
      }
    });
    // Each part is recorded before its hook: what a listener or dropout builds on it comes later on the tape, and where a
    // constant takes its place its gradient is never set.
    if (Tape* tape = ctx.tape()) tape->record(&scores_backward, node);
  });
  scores = hook("hook_attn_scores", scores);

  Tensor pattern = make();
  each_node([&](int64_t at, StepwiseNode& node, const KeySource<T>&) {
    node.scores = part(scores, at);
    node.pattern = part(pattern, at);
    fill_rest(node.pattern, node.s, T{0});
    const int64_t keys = node.s.position + node.s.rows;
    each_query(ctx, n_heads, node.s.rows, [&](int64_t h, int64_t i) {
      T* const line = cell<T>(node.pattern, h, i);
      const T* const row = cell<T>(node.scores, h, i);
      const int64_t n = up_to_the_last(row, keys);
      softmax_row(row, n, line);
      std::fill(line + n, line + keys, T{0});
      if (spec.sinks == nullptr) return;
      const T kept = 1 - share_of_sink(row, n, spec.sinks->at<T>(h));
      for (int64_t j = 0; j < n; ++j) line[j] *= kept;
    });
    if (Tape* tape = ctx.tape()) tape->record(&pattern_backward, node);
  });
  pattern = hook("hook_pattern", pattern);

  each_node([&](int64_t at, StepwiseNode& node, const KeySource<T>& source) {
    const StepSequence& s = node.s;
    node.mixed = dropout_of_sequence(ctx, part(pattern, at), spec.dropout, spec.dropout_site, s.first_row);
    // A replaced pattern may look where the mask forbids, so every key that still exists is read; what lies before the first
    // and after the last key that a query looks at is not, so that no later token's infinities reach an earlier one as NaN.
    const int64_t oldest = s.cache == nullptr ? 0 : seen_by(s, spec, s.position).first, keys = s.position + s.rows;
    each_query(ctx, n_heads, s.rows, [&](int64_t h, int64_t i) {
      T* out = z.row<T>(s.first_row + i) + h * v_dim;
      const T* p = cell<T>(node.mixed, h, i);
      std::fill(out, out + v_dim, T{0});
      int64_t begin = oldest, end = keys;
      while (begin < end && p[begin] == T{0}) ++begin;
      while (end > begin && p[end - 1] == T{0}) --end;
      for (int64_t block = begin / kKeys; block * kKeys < end; ++block) {
        const int64_t from = std::max(begin, block * kKeys), to = std::min(end, (block + 1) * kKeys);
        const auto v_stride = static_cast<int64_t>(source.v_stride());
        add_products(p + from, keys, 1, source.values(block, h / per_kv) + (from - block * kKeys) * v_stride, v_stride, to - from,
                     v_dim, out, z.row_size());
      }
    });
    if (Tape* tape = ctx.tape()) tape->record(&mix_backward, node);
  });
}

template void attention_stepwise<float>(Context&, const Tensor&, const Tensor&, const Tensor&, const Step&,
                                        std::span<const ShownSequence<float>>, const AttentionSpec&, const Tensor&);
template void attention_stepwise<double>(Context&, const Tensor&, const Tensor&, const Tensor&, const Step&,
                                         std::span<const ShownSequence<double>>, const AttentionSpec&, const Tensor&);

}  // namespace vitrine
