#include "ops/head.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "kernels/reference/backward.h"
#include "kernels/table.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/head_chunks.h"
#include "ops/linear.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct LossNode {
  Tensor x, loss, row_lse;
  Head head;
  const int32_t* labels;
  int64_t scored;
  KeptLogits logits;
};

// One row of capped logits z [n], tokens [first, first + n), becomes the loss's gradient by the logits before the cap.
template <class T>
void row_gradient(T* z, int64_t first, int64_t n, int32_t label, T lse, T unit, T cap) {
  if (label == kNotScored) {
    std::fill(z, z + n, T{0});
    return;
  }
  const bool here = label >= first && label < first + n;
  const T t = here && cap != 0 ? z[label - first] / cap : T{0};
  if constexpr (std::is_same_v<T, float>) {
    kernels().loss_gradient(z, static_cast<size_t>(n), lse, unit, cap);
  } else {
    loss_gradient_reference(z, static_cast<size_t>(n), lse, unit, cap);
  }
  if (here) z[label - first] -= unit * (1 - t) * (1 + t);
}

void loss_backward(Context& ctx, Tape& tape, const LossNode& node) {
  const Tensor dloss = tape.gradient(node.loss);
  if (!dloss || node.scored == 0) return;
  const Tensor dx = tape.accumulate(node.x);
  const Weight& w = *node.head.weight;
  const bool first_to_w = takes_first(w.grad);
  visit_scalar(dloss, [&](auto zero) {
    using T = decltype(zero);
    const T unit = *dloss.data<T>() / static_cast<T>(node.scored), cap = static_cast<T>(node.head.softcap);
    each_chunk<T>(ctx, node.x, node.head, node.logits, [&](const Tensor& rows, int64_t row, int64_t first, int64_t n, T* z) {
      parallel_for(ctx, rows.rows(), n, [&](int64_t begin, int64_t count) {
        for (int64_t r = begin; r < begin + count; ++r)
          row_gradient(z + r * n, first, n, node.labels[row + r], node.row_lse.data<T>()[row + r], unit, cap);
      });
      head_chunk_backward(ctx, rows, w, first, n, z, dx ? dx.rows_view(row, rows.rows()) : Tensor(), first_to_w && row == 0);
    });
  });
  tape.reuse_for_gradients(node.logits.data, node.logits.bytes);
}

}  // namespace

void require_present(const Weight& head) {
  if (head.absent)
    throw InputError("the model's files hold no " + head.name +
                     ", as those of embedding models: hidden states and embeddings can be read, predictions cannot");
}

Tensor logits(Context& ctx, const Tensor& x, const Head& head, std::span<const int64_t> rows) {
  if (!ctx.listens("hook_logits")) {
    const RowsTaken taken(ctx, rows);
    return softcap(ctx, linear(ctx, read_by(ctx, take_rows(ctx, x, rows), head), *head.weight), head.softcap);
  }
  // Somebody watches: the whole table, of which the wanted rows are taken after the hook.
  const Tensor all = ctx.hook("hook_logits", softcap(ctx, linear(ctx, read_by(ctx, x, head), *head.weight), head.softcap));
  return take_rows(ctx, all, rows);
}

Tensor cross_entropy(Context& ctx, const Tensor& stream, const Head& head, std::span<const int32_t> labels) {
  const Tensor x = read_by(ctx, stream, head);
  const int64_t rows = x.rows(), vocab = head.weight->out;
  if (static_cast<int64_t>(labels.size()) != rows)
    throw ShapeError("cross_entropy: " + std::to_string(labels.size()) + " labels for " + std::to_string(rows) + " rows");
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != kNotScored && (labels[i] < 0 || labels[i] >= vocab))
      throw InputError("label " + std::to_string(labels[i]) + " at place " + std::to_string(i) +
                       " is outside the vocabulary of " + std::to_string(vocab) + " (" + std::to_string(kNotScored) +
                       " means: not scored)");
  }
  const int64_t scored = scored_in(labels);
  const Tensor loss = ctx.empty({1}), row_lse = ctx.empty({rows});
  Tape* const tape = ctx.tape();
  KeptLogits kept;
  if (tape != nullptr) {
    kept.bytes = std::min(tape->saved_budget(), row_bytes(x.dtype(), static_cast<size_t>(rows * vocab)));
    kept.data = tape->allocate_saved(kept.bytes);
  }
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const auto scratch = ctx.frame();
    auto* of_label = ctx.scratch<T>(static_cast<size_t>(rows));
    T* lse = row_lse.data<T>();
    std::fill(lse, lse + rows, -std::numeric_limits<T>::infinity());
    std::fill(of_label, of_label + rows, T{0});
    each_chunk<T>(ctx, x, head, kept, [&](const Tensor& chunk, int64_t row, int64_t first, int64_t n, const T* z) {
      parallel_for(ctx, chunk.rows(), n, [&](int64_t begin, int64_t count) {
        for (int64_t r = begin; r < begin + count; ++r) {
          lse[row + r] = join(lse[row + r], log_sum_exp(z + r * n, n));
          const int64_t label = labels[static_cast<size_t>(row + r)] - first;
          if (label >= 0 && label < n) of_label[row + r] = z[r * n + label];
        }
      });
    });
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r)
      if (labels[static_cast<size_t>(r)] != kNotScored) sum += static_cast<double>(lse[r] - of_label[r]);
    *loss.data<T>() = scored > 0 ? static_cast<T>(sum / static_cast<double>(scored)) : T{0};
  });
  if (tape != nullptr) {
    kept.there = true;
    tape->record(&loss_backward, LossNode{x, loss, row_lse, head, tape->keep(labels), scored, kept});
  }
  return loss;
}

int64_t scored_in(std::span<const int32_t> labels) {
  return static_cast<int64_t>(labels.size()) - std::count(labels.begin(), labels.end(), kNotScored);
}

int64_t first_not_finite(const Tensor& t) {
  int64_t found = -1;
  visit_scalar(t, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < t.rows() && found < 0; ++r) {
      const T* row = t.row<T>(r);
      double sum = 0;  // of squares, which no f32 takes beyond the largest double: finite where all are
      if constexpr (std::is_same_v<T, float>) {
        sum = kernels().sum_of_squares(row, static_cast<size_t>(t.row_size()));
      } else {
        for (int64_t i = 0; i < t.row_size(); ++i) sum += row[i] * 0;
      }
      if (!std::isfinite(sum)) found = r;
    }
  });
  return found;
}

}  // namespace vitrine
