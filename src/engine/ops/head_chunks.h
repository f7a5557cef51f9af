#pragma once
// A head's logits in pieces of the vocabulary, for losses: of [T, vocab_size] no more exists than a chunk and Tape::kSavedBytes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/softmax.h"
#include "kernels/table.h"
#include "ops/elementwise.h"
#include "ops/head.h"
#include "ops/linear.h"
#include "ops/low_rank.h"
#include "ops/rows.h"

namespace vitrine {

// What exists of [T, vocab_size] at a time: 16 MiB of logits in f32.
inline constexpr int64_t kRowChunk = 1024, kVocabularyChunk = 4096;

/// Numbers that one chunk of this head takes at most.
inline size_t chunk_size(int64_t rows, int64_t vocab_size) {
  return static_cast<size_t>(std::min(rows, kRowChunk) * std::min(vocab_size, kVocabularyChunk));
}

/// z [rows.rows(), n]: the capped logits of these rows, rows `row` and those after it of the step, for tokens [first, first + n).
/// bias: the head's, as values_of<T>() gives it.
template <class T>
void head_chunk(Context& ctx, const Tensor& rows, int64_t row, const Head& head, const T* bias, int64_t first, int64_t n, T* z) {
  const T cap = static_cast<T>(head.softcap);
  linear_part(ctx, rows, *head.weight, first, n, z, n);
  if (head.weight->adapter != nullptr) low_rank_part(ctx, rows, *head.weight, *head.weight->adapter, first, n, z, n);
  if (!ctx.row_adapters.empty()) add_row_adapters(ctx, rows, *head.weight, row, first, n, z, n);
  if (bias == nullptr && cap == 0) return;
  parallel_for(ctx, rows.rows(), n, [&](int64_t begin, int64_t count) {
    for (T* line = z + begin * n; line < z + (begin + count) * n; line += n) {
      if constexpr (std::is_same_v<T, float>) {
        if (bias != nullptr) kernels().add(line, bias + first, static_cast<size_t>(n), line);
        if (cap != 0) kernels().softcap(line, cap, static_cast<size_t>(n), line);
      } else {
        for (int64_t j = 0; j < n; ++j) {
          if (bias != nullptr) line[j] += bias[first + j];
          if (cap != 0) line[j] = cap * std::tanh(line[j] / cap);
        }
      }
    }
  });
}

/// Backward of such a chunk, without the cap: dz [rows.rows(), n]; adds to dx, if it is not empty. set_w: as
/// linear_part_backward.
template <class T>
void head_chunk_backward(Context& ctx, const Tensor& rows, const Weight& w, int64_t first, int64_t n, const T* dz,
                         const Tensor& dx, bool set_w) {
  linear_part_backward(ctx, rows, w, first, n, dz, n, dx, true, set_w);
  if (w.adapter != nullptr) low_rank_part_backward(ctx, rows, w, *w.adapter, first, n, dz, n, dx);
  bias_backward(ctx, w, first, n, dz, n, rows.rows(), rows.dtype());
}

/// What the head's matrix reads: x times the head's scale. Errors: InputError for a head that the model's files do not hold.
inline Tensor read_by(Context& ctx, const Tensor& x, const Head& head) {
  if (ctx.dry() == nullptr) require_present(*head.weight);
  return head.scale == 1 ? x : scale(ctx, x, head.scale);
}

/// Where the logits of the first chunks stay, as many as fit.
struct KeptLogits {
  void* data = nullptr;
  size_t bytes = 0;
  bool there = false;  // from a walk before
};

/// Calls f(rows, row, first, n, z) for each chunk of rows and of the vocabulary; z [rows.rows(), n] are the capped logits of
/// the rows from `row` on, for tokens [first, first + n).
template <class T, class F>
void each_chunk(Context& ctx, const Tensor& x, const Head& head, const KeptLogits& kept, F&& f) {
  const int64_t vocab = head.weight->out;
  const auto scratch = ctx.frame();
  const size_t all = static_cast<size_t>(x.rows() * vocab), room = kept.bytes / sizeof(T);
  T* const passing = room < all ? ctx.scratch<T>(chunk_size(x.rows(), vocab)) : nullptr;
  size_t used = 0;
  const T* bias = values_of<T>(ctx, head.weight->bias);
  for (int64_t row = 0; row < x.rows(); row += kRowChunk) {
    const Tensor rows = x.rows_view(row, std::min(kRowChunk, x.rows() - row));
    for (int64_t first = 0; first < vocab; first += kVocabularyChunk) {
      const int64_t n = std::min(kVocabularyChunk, vocab - first);
      const auto size = static_cast<size_t>(rows.rows() * n);
      const bool stays = size <= room - used;
      T* const z = stays ? static_cast<T*>(kept.data) + used : passing;
      if (stays) used += size;
      if (!stays || !kept.there) head_chunk(ctx, rows, row, head, bias, first, n, z);
      f(rows, row, first, n, z);
    }
  }
}

template <class T>
T log_sum_exp(const T* x, int64_t n) {
  if constexpr (std::is_same_v<T, float>) return kernels().log_sum_exp(x, static_cast<size_t>(n));
  return log_sum_exp_reference(x, static_cast<size_t>(n));
}

template <class T>
void scale_row(T* z, int64_t n, T factor) {
  if (factor == 1) return;
  for (int64_t i = 0; i < n; ++i) z[i] *= factor;
}

/// log of the sum of exp(z / temperature), without changing z; room [n].
template <class T>
T scaled_lse(const T* z, int64_t n, T inverse_temperature, T* room) {
  if (inverse_temperature == 1) return log_sum_exp(z, n);
  for (int64_t i = 0; i < n; ++i) room[i] = z[i] * inverse_temperature;
  return log_sum_exp(room, n);
}

/// log(exp(a) + exp(b)); -inf is nothing yet.
template <class T>
T join(T a, T b) {
  constexpr T kNothing = -std::numeric_limits<T>::infinity();
  if (a == kNothing) return b;
  if (b == kNothing) return a;
  const T most = std::max(a, b);
  return most + std::log(std::exp(a - most) + std::exp(b - most));
}

}  // namespace vitrine
