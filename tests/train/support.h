#pragma once
// Batches and learners for the tests of training.
#include <string>
#include <vector>

#include "support/golden.h"
#include "train/learner.h"

namespace vitrine {

/// Every row of a golden prompt as a sequence, its labels moved by one: label t + 1 is scored against row t.
inline Batch golden_batch(const GoldenPrompt& prompt) {
  Batch batch;
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    batch.tokens.insert(batch.tokens.end(), prompt.ids[i].begin(), prompt.ids[i].end());
    batch.labels.insert(batch.labels.end(), prompt.labels[i].begin() + 1, prompt.labels[i].end());
    batch.labels.push_back(kNotScored);
    batch.lengths.push_back(static_cast<int64_t>(prompt.ids[i].size()));
  }
  return batch;
}

}  // namespace vitrine
