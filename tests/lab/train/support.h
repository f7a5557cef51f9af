#pragma once
// Batches, learners and models for the tests of training.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "io/huggingface.h"
#include "io/safetensors.h"
#include "model/load.h"
#include "support/close.h"
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

/// Expects the weights that a golden file has, to 1e-4 of the largest of each tensor. Returns how many tensors it compared.
inline size_t expect_golden_weights(const Learner& learner, const std::string& path) {
  const Checkpoint expected = open_safetensors(path);
  size_t compared = 0;
  for (const Parameter& p : learner.parameters().list()) {
    if (expected.find(p.name) == nullptr) continue;
    SCOPED_TRACE(path + " " + p.name);
    const GoldenTensor want = golden_tensor(expected, p.name);
    double largest = 0;
    for (const float x : want) largest = std::max(largest, std::abs(static_cast<double>(x)));
    const std::vector<float> got(learner.parameters().weights(p), learner.parameters().weights(p) + p.count);
    EXPECT_CLOSE(got, std::vector<float>(want.begin(), want.end()), (Tolerance{.abs = 1e-4 * largest, .rel = 0}));
    ++compared;
  }
  return compared;
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
