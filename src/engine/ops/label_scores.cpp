#include "ops/label_scores.h"

#include <algorithm>
#include <limits>
#include <string>

#include "ops/head_chunks.h"

namespace vitrine {
namespace {

// The largest of z [n]; eight of them at a time, so that the loop vectorizes. NaN is ignored.
template <class T>
T largest(const T* z, int64_t n) {
  constexpr int64_t kLanes = 8;
  T most[kLanes];
  std::fill(most, most + kLanes, -std::numeric_limits<T>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) most[j] = z[i + j] > most[j] ? z[i + j] : most[j];
  for (; i < n; ++i) most[0] = z[i] > most[0] ? z[i] : most[0];
  return *std::max_element(most, most + kLanes);
}

void check_labels(int64_t rows, int64_t vocab, std::span<const int32_t> labels) {
  if (static_cast<int64_t>(labels.size()) != rows)
    throw ShapeError("label_scores: " + std::to_string(labels.size()) + " labels for " + std::to_string(rows) + " rows");
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i] < 0 || labels[i] >= vocab)
      throw InputError("label " + std::to_string(labels[i]) + " at place " + std::to_string(i) +
                       " is outside the vocabulary of " + std::to_string(vocab));
}

// What the chunks so far say of a row.
template <class T>
struct RowState {
  T lse = -std::numeric_limits<T>::infinity(), most = lse, of_label = 0;
  int32_t most_likely = 0;

  // z [n]: its logits for tokens [first, first + n).
  void see(const T* z, int64_t first, int64_t n, int64_t label) {
    lse = join(lse, log_sum_exp(z, n));
    if (label >= first && label < first + n) of_label = z[label - first];
    const T here = largest(z, n);
    if (!(here > most)) return;
    most = here;
    most_likely = static_cast<int32_t>(first + (std::find(z, z + n, here) - z));
  }
  LabelScore score() const { return {static_cast<float>(of_label - lse), most_likely}; }
};

}  // namespace

std::vector<LabelScore> label_scores(Context& ctx, const Tensor& x, const Head& head, std::span<const int32_t> labels) {
  check_labels(x.rows(), head.weight->out, labels);
  std::vector<LabelScore> scores(labels.size());
  if (labels.empty()) return scores;
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    std::vector<RowState<T>> states(labels.size());
    each_chunk<T>(ctx, x, head, {}, [&](const Tensor& chunk, int64_t row, int64_t first, int64_t n, const T* z) {
      parallel_for(ctx, chunk.rows(), n, [&](int64_t begin, int64_t count) {
        for (int64_t r = begin; r < begin + count; ++r)
          states[static_cast<size_t>(row + r)].see(z + r * n, first, n, labels[static_cast<size_t>(row + r)]);
      });
    });
    for (size_t r = 0; r < states.size(); ++r) scores[r] = states[r].score();
  });
  return scores;
}

std::vector<LabelScore> label_scores(Context& ctx, const Tensor& z, std::span<const int32_t> labels) {
  const int64_t vocab = z.row_size();
  check_labels(z.rows(), vocab, labels);
  std::vector<LabelScore> scores(labels.size());
  visit_scalar(z, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, z.rows(), vocab, [&](int64_t begin, int64_t count) {
      for (int64_t r = begin; r < begin + count; ++r) {
        RowState<T> state;  // in the pieces of a walk through the head, so that sums are rounded alike
        for (int64_t first = 0; first < vocab; first += kVocabularyChunk)
          state.see(z.row<T>(r) + first, first, std::min(kVocabularyChunk, vocab - first), labels[static_cast<size_t>(r)]);
        scores[static_cast<size_t>(r)] = state.score();
      }
    });
  });
  return scores;
}

}  // namespace vitrine
