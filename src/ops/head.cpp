#include "ops/head.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

constexpr int64_t kVocabularyChunk = 4096;

struct LossNode {
  Tensor x, loss, row_lse;
  Head head;
  const int32_t* labels;
  int64_t scored;
};

// Calls f(first, n, z) for each chunk of the vocabulary; z [rows, n] are capped logits, `raw` those before the cap.
template <class T, class F>
void each_chunk(Context& ctx, const Tensor& x, const Head& head, F&& f) {
  const Weight& w = *head.weight;
  const T cap = static_cast<T>(head.softcap);
  const auto scratch = ctx.frame();
  T* z = ctx.scratch<T>(static_cast<size_t>(x.rows() * kVocabularyChunk));
  for (int64_t first = 0; first < w.out; first += kVocabularyChunk) {
    const int64_t n = std::min(kVocabularyChunk, w.out - first);
    linear_part(ctx, x, w, first, n, z, n);
    share(ctx, x.rows(), n, [&](int64_t row, int64_t rows) {
      for (int64_t i = row * n; i < (row + rows) * n; ++i) {
        if (w.bias) z[i] += w.bias.at<T>(first + i % n);
        if (cap != 0) z[i] = cap * std::tanh(z[i] / cap);
      }
    });
    f(first, n, z);
  }
}

void loss_backward(Context& ctx, Tape& tape, const LossNode& node) {
  const Tensor dloss = tape.gradient(node.loss);
  if (!dloss || node.scored == 0) return;
  const Tensor dx = tape.accumulate(node.x);
  const Weight& w = *node.head.weight;
  visit_scalar(dloss, [&](auto zero) {
    using T = decltype(zero);
    const T unit = *dloss.data<T>() / static_cast<T>(node.scored), cap = static_cast<T>(node.head.softcap);
    each_chunk<T>(ctx, node.x, node.head, [&](int64_t first, int64_t n, T* z) {
      share(ctx, node.x.rows(), n, [&](int64_t row, int64_t rows) {
        for (int64_t r = row; r < row + rows; ++r)
          for (int64_t j = 0; j < n; ++j) {
            T& value = z[r * n + j];
            if (node.labels[r] == kNotScored) {
              value = 0;
              continue;
            }
            const T t = cap != 0 ? value / cap : T{0};  // tanh of the uncapped logit over the cap
            const T p = std::exp(value - node.row_lse.data<T>()[r]) - (node.labels[r] == first + j ? T{1} : T{0});
            value = unit * p * (1 - t) * (1 + t);
          }
      });
      linear_part_backward(ctx, node.x, w, first, n, z, n, dx);
      if (w.bias && w.bias.grad.data != nullptr)
        for (int64_t r = 0; r < node.x.rows(); ++r)
          for (int64_t j = 0; j < n; ++j) static_cast<T*>(w.bias.grad.data)[first + j] += z[r * n + j];
    });
  });
}

}  // namespace

Tensor logits(Context& ctx, const Tensor& x, const Head& head, std::span<const int64_t> rows) {
  if (!ctx.listens("hook_logits")) return softcap(ctx, linear(ctx, take_rows(ctx, x, rows), *head.weight), head.softcap);
  // Somebody watches: the whole table, of which the wanted rows are taken after the hook.
  const Tensor all = ctx.hook("hook_logits", softcap(ctx, linear(ctx, x, *head.weight), head.softcap));
  return take_rows(ctx, all, rows);
}

Tensor cross_entropy(Context& ctx, const Tensor& x, const Head& head, std::span<const int32_t> labels) {
  const int64_t rows = x.rows(), vocab = head.weight->out;
  if (static_cast<int64_t>(labels.size()) != rows)
    throw ShapeError("cross_entropy: " + std::to_string(labels.size()) + " labels for " + std::to_string(rows) + " rows");
  int64_t scored = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != kNotScored && (labels[i] < 0 || labels[i] >= vocab))
      throw InputError("label " + std::to_string(labels[i]) + " at place " + std::to_string(i) +
                       " is outside the vocabulary of " + std::to_string(vocab) + " (" + std::to_string(kNotScored) +
                       " means: not scored)");
    scored += labels[i] != kNotScored ? 1 : 0;
  }
  const Tensor loss = ctx.empty({1}), row_lse = ctx.empty({rows});
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const auto scratch = ctx.frame();
    auto* largest = ctx.scratch<T>(static_cast<size_t>(rows));
    auto* total = ctx.scratch<T>(static_cast<size_t>(rows));
    auto* of_label = ctx.scratch<T>(static_cast<size_t>(rows));
    std::fill(largest, largest + rows, -std::numeric_limits<T>::infinity());
    std::fill(total, total + rows, T{0});
    std::fill(of_label, of_label + rows, T{0});
    each_chunk<T>(ctx, x, head, [&](int64_t first, int64_t n, const T* z) {
      share(ctx, rows, n, [&](int64_t row, int64_t count) {
        for (int64_t r = row; r < row + count; ++r) {
          const T* line = z + r * n;
          const T m = std::max(largest[r], *std::max_element(line, line + n));
          T sum = 0;
          for (int64_t j = 0; j < n; ++j) sum += std::exp(line[j] - m);
          total[r] = total[r] * std::exp(largest[r] - m) + sum;
          largest[r] = m;
          if (labels[static_cast<size_t>(r)] >= first && labels[static_cast<size_t>(r)] < first + n)
            of_label[r] = line[labels[static_cast<size_t>(r)] - first];
        }
      });
    });
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) {
      row_lse.data<T>()[r] = largest[r] + std::log(total[r]);
      if (labels[static_cast<size_t>(r)] != kNotScored) sum += static_cast<double>(row_lse.data<T>()[r] - of_label[r]);
    }
    *loss.data<T>() = scored > 0 ? static_cast<T>(sum / static_cast<double>(scored)) : T{0};
  });
  if (Tape* tape = ctx.tape()) {
    auto* kept = static_cast<int32_t*>(tape->arena().allocate(labels.size_bytes()));
    std::memcpy(kept, labels.data(), labels.size_bytes());
    tape->record(&loss_backward, LossNode{x, loss, row_lse, head, kept, scored});
  }
  return loss;
}

int64_t first_not_finite(const Tensor& t) {
  int64_t found = -1;
  visit_scalar(t, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < t.rows() && found < 0; ++r) {
      const T* row = t.row<T>(r);
      T sum[8] = {0};  // x · 0 is 0 for every number and NaN for the rest; eight sums, so that the loop vectorises
      int64_t i = 0;
      for (; i + 8 <= t.row_size(); i += 8)
        for (int j = 0; j < 8; ++j) sum[j] += row[i + j] * 0;
      for (; i < t.row_size(); ++i) sum[0] += row[i] * 0;
      for (int j = 1; j < 8; ++j) sum[0] += sum[j];
      if (!(sum[0] == 0)) found = r;
    }
  });
  return found;
}

}  // namespace vitrine
