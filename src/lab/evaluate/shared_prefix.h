#pragma once
// Sequences that begin alike: what they share goes through the model once.
#include <span>
#include <vector>

#include "evaluate/score.h"

namespace vitrine {

/// Sequences of which the first `shared` read tokens are equal.
struct SharedGroup {
  std::vector<ScoredSequence> sequences;
  size_t shared = 0;

  /// Rows that the model runs for them.
  int64_t rows() const;
};
/// How much the sequences share, or 0 where sharing saves too little.
SharedGroup group_of(std::vector<ScoredSequence> sequences);

/// Scores the labels of all sequences of all groups, one behind the other, in two steps: the shared beginnings, then the rest
/// with copies of their caches. `cache` must hold each of the sequences, and take the rows of a step for each.
/// Errors: as score_sequences.
std::vector<LabelScore> score_groups(Engine& engine, KvCache& cache, std::span<const SharedGroup> groups);

}  // namespace vitrine
