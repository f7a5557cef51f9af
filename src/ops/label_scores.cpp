#include "ops/label_scores.h"

#include <algorithm>
#include <limits>
#include <string>

#include "ops/head_chunks.h"

namespace vitrine {
namespace {

// The largest of z [n]; eight of them at a time, so that the loop vectorises. NaN is passed over.
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

void check_labels(const Tensor& x, const Head& head, std::span<const int32_t> labels) {
  if (static_cast<int64_t>(labels.size()) != x.rows())
    throw ShapeError("label_scores: " + std::to_string(labels.size()) + " labels for " + std::to_string(x.rows()) + " rows");
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i] < 0 || labels[i] >= head.weight->out)
      throw InputError("label " + std::to_string(labels[i]) + " at place " + std::to_string(i) +
                       " is outside the vocabulary of " + std::to_string(head.weight->out));
}

// What the chunks so far say of a row.
template <class T>
struct RowState {
  T lse = -std::numeric_limits<T>::infinity(), most = lse, of_label = 0;
  int32_t likeliest = 0;

  // z [n]: its logits for tokens [first, first + n).
  void see(const T* z, int64_t first, int64_t n, int64_t label) {
    lse = join(lse, log_sum_exp(z, n));
    if (label >= first && label < first + n) of_label = z[label - first];
    const T here = largest(z, n);
    if (!(here > most)) return;
    most = here;
    likeliest = static_cast<int32_t>(first + (std::find(z, z + n, here) - z));
  }
};

}  // namespace

std::vector<LabelScore> label_scores(Context& ctx, const Tensor& x, const Head& head, std::span<const int32_t> labels) {
  check_labels(x, head, labels);
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
    for (size_t r = 0; r < states.size(); ++r)
      scores[r] = {static_cast<float>(states[r].of_label - states[r].lse), states[r].likeliest};
  });
  return scores;
}

}  // namespace vitrine
