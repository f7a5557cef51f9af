#pragma once
// The rows of a batch that are scored: where few are, they alone go through the head.
#include <cstdint>
#include <span>
#include <vector>

#include "ops/embed.h"
#include "ops/head.h"

namespace vitrine {

struct ScoredRows {
  std::vector<int64_t> rows;
  std::vector<int32_t> labels;  // of each
};

/// Of rows [first, first + length).
inline ScoredRows scored_rows(std::span<const int32_t> labels, int64_t first, int64_t length) {
  ScoredRows scored;
  for (int64_t row = first; row < first + length; ++row) {
    const int32_t label = labels[static_cast<size_t>(row)];
    if (label == kNotScored) continue;
    scored.rows.push_back(row);
    scored.labels.push_back(label);
  }
  return scored;
}

/// cross_entropy() of the same rows, of which only the scored ones go through the head where that saves a quarter of it: the
/// assistant's turns are often the smaller part of a conversation. Backward and errors as there.
inline Tensor scored_cross_entropy(Context& ctx, const Tensor& x, const Head& head, std::span<const int32_t> labels) {
  const auto rows = static_cast<int64_t>(labels.size());
  const int64_t scored = scored_in(labels);
  if (scored == 0 || 4 * scored >= 3 * rows) return cross_entropy(ctx, x, head, labels);
  const ScoredRows some = scored_rows(labels, 0, rows);
  return cross_entropy(ctx, take_rows(ctx, x, some.rows), head, some.labels);
}

}  // namespace vitrine
