#include "ops/head.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

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

// What was read of the labels: their mean loss [1], or the log-probability of each [rows].
struct LabelNode {
  Tensor x, out, row_lse;
  Head head;
  const int32_t* labels;
  double temperature;
  int64_t scored;
  bool mean;
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

void labels_backward(Context& ctx, Tape& tape, const LabelNode& node) {
  const Tensor dout = tape.gradient(node.out);
  if (!dout || node.scored == 0) return;
  const Tensor dx = tape.accumulate(node.x);
  const Weight& w = *node.head.weight;
  const bool first_to_w = takes_first(w.grad);
  visit_scalar(dout, [&](auto zero) {
    using T = decltype(zero);
    const T inverse = static_cast<T>(1 / node.temperature), cap = static_cast<T>(node.head.softcap) * inverse;
    const T of_mean = node.mean ? *dout.data<T>() / static_cast<T>(node.scored) : T{0};
    each_chunk<T>(ctx, node.x, node.head, node.logits, [&](const Tensor& rows, int64_t row, int64_t first, int64_t n, T* z) {
      parallel_for(ctx, rows.rows(), n, [&](int64_t begin, int64_t count) {
        for (int64_t r = begin; r < begin + count; ++r) {
          const T unit = node.mean ? of_mean : -dout.data<T>()[row + r];
          scale_row(z + r * n, n, inverse);
          row_gradient(z + r * n, first, n, node.labels[row + r], node.row_lse.data<T>()[row + r], unit * inverse, cap);
        }
      });
      head_chunk_backward(ctx, rows, w, first, n, z, dx ? dx.rows_view(row, rows.rows()) : Tensor(), first_to_w && row == 0);
    });
  });
  tape.reuse_for_gradients(node.logits.data, node.logits.bytes);
}

void check_labels(const char* op, std::span<const int32_t> labels, int64_t rows, int64_t vocab) {
  if (static_cast<int64_t>(labels.size()) != rows)
    throw ShapeError(std::string(op) + ": " + std::to_string(labels.size()) + " labels for " + std::to_string(rows) + " rows");
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != kNotScored && (labels[i] < 0 || labels[i] >= vocab))
      throw InputError("label " + std::to_string(labels[i]) + " at place " + std::to_string(i) +
                       " is outside the vocabulary of " + std::to_string(vocab) + " (" + std::to_string(kNotScored) +
                       " means: not scored)");
}

// The mean of z [n] times `factor` under its softmax, whose log(sum of exp) is known; room [n].
template <class T>
T mean_of_softmax(const T* z, int64_t n, T factor, T lse, T* room) {
  for (int64_t i = 0; i < n; ++i) room[i] = z[i] * factor;
  if constexpr (std::is_same_v<T, float>)
    kernels().loss_gradient(room, static_cast<size_t>(n), lse, T{1}, T{0});
  else
    loss_gradient_reference(room, static_cast<size_t>(n), lse, T{1}, T{0});
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += room[i] * (z[i] * factor);
  return sum;
}

// Calls use(lse, of_label): of each row, log(sum of exp) of the logits / temperature, and the label's logit / temperature.
// entropies: becomes those of the rows, if it is given.
template <class Use>
Tensor read_labels(Context& ctx, const Tensor& x, const Head& head, std::span<const int32_t> labels, double temperature,
                   const Tensor& out, bool mean, Tensor* entropies, Use&& use) {
  const int64_t rows = x.rows(), vocab = head.weight->out;
  const Tensor row_lse = ctx.empty({rows});
  if (entropies != nullptr) *entropies = ctx.empty({rows});
  Tape* const tape = ctx.tape();
  KeptLogits kept;
  if (tape != nullptr) {
    kept.bytes = std::min(tape->saved_budget(), row_bytes(x.dtype(), static_cast<size_t>(rows * vocab)));
    kept.data = tape->allocate_saved(kept.bytes);
  }
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const auto scratch = ctx.frame();
    const T inverse = static_cast<T>(1 / temperature);
    auto* of_label = ctx.scratch<T>(static_cast<size_t>(rows));
    T* lse = row_lse.data<T>();
    std::fill(lse, lse + rows, -std::numeric_limits<T>::infinity());
    std::fill(of_label, of_label + rows, T{0});
    const int64_t room_size = inverse == 1 && entropies == nullptr ? 0 : std::min(vocab, kVocabularyChunk);
    T* const rooms = ctx.scratch<T>(static_cast<size_t>(room_size * ctx.pool().threads()));
    each_chunk<T>(ctx, x, head, kept, [&](const Tensor& chunk, int64_t row, int64_t first, int64_t n, const T* z) {
      parallel_for(ctx, chunk.rows(), n, [&](int64_t begin, int64_t count, int thread) {
        T* const room = rooms + thread * room_size;
        for (int64_t r = begin; r < begin + count; ++r) {
          const T before = lse[row + r], here = scaled_lse(z + r * n, n, inverse, room);
          lse[row + r] = join(before, here);
          if (entropies != nullptr) {  // until the end, the mean of the logits so far
            T& mean_so_far = entropies->data<T>()[row + r];
            const T of_chunk = mean_of_softmax(z + r * n, n, inverse, here, room);
            mean_so_far =
                first == 0 ? of_chunk : mean_so_far * std::exp(before - lse[row + r]) + of_chunk * std::exp(here - lse[row + r]);
          }
          const int64_t label = labels[static_cast<size_t>(row + r)] - first;
          if (label >= 0 && label < n) of_label[row + r] = z[r * n + label] * inverse;
        }
      });
    });
    if (entropies != nullptr)
      for (int64_t r = 0; r < rows; ++r) entropies->data<T>()[r] = lse[r] - entropies->data<T>()[r];
    use(lse, of_label);
  });
  if (tape != nullptr) {
    kept.there = true;
    tape->record(&labels_backward,
                 LabelNode{x, out, row_lse, head, tape->keep(labels), temperature, scored_in(labels), mean, kept});
  }
  return out;
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
  check_labels("cross_entropy", labels, x.rows(), head.weight->out);
  const int64_t scored = scored_in(labels);
  const Tensor loss = ctx.empty({1});
  return read_labels(ctx, x, head, labels, 1, loss, true, nullptr, [&]<class T>(const T* lse, const T* of_label) {
    double sum = 0;
    for (size_t r = 0; r < labels.size(); ++r)
      if (labels[r] != kNotScored) sum += static_cast<double>(lse[r] - of_label[r]);
    *loss.data<T>() = scored > 0 ? static_cast<T>(sum / static_cast<double>(scored)) : T{0};
  });
}

Tensor label_logprobs(Context& ctx, const Tensor& stream, const Head& head, std::span<const int32_t> labels, double temperature,
                      Tensor* entropies) {
  const Tensor x = read_by(ctx, stream, head);
  check_labels("label_logprobs", labels, x.rows(), head.weight->out);
  const Tensor logprobs = ctx.empty({x.rows()});
  return read_labels(ctx, x, head, labels, temperature, logprobs, false, entropies,
                     [&]<class T>(const T* lse, const T* of_label) {
                       for (size_t r = 0; r < labels.size(); ++r)
                         logprobs.data<T>()[r] = labels[r] != kNotScored ? of_label[r] - lse[r] : T{0};
                     });
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
