#pragma once
// Batches, learners and models for the tests of training.
#include <string>
#include <vector>

#include "io/huggingface.h"
#include "model/load.h"
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

/// The part of a batch that a rank has: its share of the sequences, rounded up, so that the last ranks may have none.
inline Batch part_of(const Batch& batch, int rank, int ranks) {
  const auto all = static_cast<int64_t>(batch.lengths.size()), share = (all + ranks - 1) / ranks;
  Batch part;
  size_t row = 0;
  for (int64_t i = 0; i < all; ++i) {
    const auto rows = static_cast<size_t>(batch.lengths[static_cast<size_t>(i)]), end = row + rows;
    if (i / share == rank) {
      if (part.lengths.empty()) part.first_row = row;
      part.lengths.push_back(batch.lengths[static_cast<size_t>(i)]);
      for (; row < end; ++row) {
        part.tokens.push_back(batch.tokens[row]);
        part.labels.push_back(batch.labels[row]);
      }
    }
    row = end;
  }
  return part;
}

/// A golden model whose config.json has these keys, too.
inline OpenedModel golden_with_keys(const std::string& name, const Json& keys) {
  ModelFiles files = resolve_model(Golden::open(name).model());
  for (const auto& [key, value] : keys.items()) files.config[key] = value;
  return open_model(std::move(files));
}

}  // namespace vitrine
