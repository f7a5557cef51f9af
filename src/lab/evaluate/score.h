#pragma once
// Log-probabilities of known tokens: sequences that are read together, and the tokens that are scored behind their last rows.
#include <cstdint>
#include <span>
#include <vector>

#include "ops/label_scores.h"
#include "runtime/engine.h"

namespace vitrine {

/// Rows that go through the model in one step, so that the weights are read once for all of them.
inline constexpr int64_t kScoredRows = 1024;

/// A sequence and the tokens that follow its last rows: labels[i] is scored at row read.size() - labels.size() + i.
struct ScoredSequence {
  std::vector<int32_t> read;    // at least one
  std::vector<int32_t> labels;  // as many as rows, or fewer
};

/// What else was likely at the rows that are scored.
struct LikelyTokens {
  int64_t top = 0;                              // to keep of each row
  std::vector<std::vector<TokenLogprob>> rows;  // most likely first; one list for each label, in the labels' order
};

/// The labels of all of them.
size_t labels_of(std::span<const ScoredSequence> sequences);
/// A checksum of what they read and what is scored, the key of a unit of shared work (io/shared_work.h), from `before` on.
uint64_t key_of(std::span<const ScoredSequence> sequences, uint64_t before = 0);

/// Scores all labels, one sequence's behind the other's. The sequences share one step: together they should have at most
/// kScoredRows rows. One that is longer by itself is cut, and its keys and values are cached; where the engine's cache has narrow
/// types every one goes through it, by itself.
/// Errors: as Engine::check_ids, which also sees the labels; RunError that names the first NaN or infinity.
/// likely: if there is one, its rows are added to; that takes another product with the vocabulary.
std::vector<LabelScore> score_sequences(Engine& engine, std::span<const ScoredSequence> sequences,
                                        LikelyTokens* likely = nullptr);

/// The same for some rows of a step whose stream behind the last block is x [step.rows(), d_model]: labels[i] at rows[i].
std::vector<LabelScore> score_rows(Engine& engine, const Step& step, const Tensor& x, std::span<const int64_t> rows,
                                   std::span<const int32_t> labels, LikelyTokens* likely = nullptr);

}  // namespace vitrine
