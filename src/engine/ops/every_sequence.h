#pragma once
// Which sequence and row a row belongs to that a listener of kEverySequence (ops/context.h) is shown.
#include <algorithm>
#include <cstdint>
#include <span>

#include "ops/step.h"

namespace vitrine {

/// The most rows that one of them has.
inline int64_t longest(std::span<const StepSequence> sequences) {
  int64_t rows = 0;
  for (const StepSequence& s : sequences) rows = std::max(rows, s.rows);
  return rows;
}

/// A row of what was shown: whose it is, and which of that sequence's rows.
struct ShownRow {
  size_t sequence;
  int64_t row;
};
/// queries: `row` counts [sequence, query] of scores or patterns, where every sequence has as many as the longest; otherwise the
/// step's rows.
inline ShownRow shown_row(std::span<const StepSequence> sequences, int64_t row, bool queries) {
  if (queries) return {static_cast<size_t>(row / longest(sequences)), row % longest(sequences)};
  size_t i = 0;
  while (i + 1 < sequences.size() && row >= sequences[i].first_row + sequences[i].rows) ++i;
  return {i, row - sequences[i].first_row};
}

}  // namespace vitrine
