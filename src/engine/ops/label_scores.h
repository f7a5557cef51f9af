#pragma once
// What a head says of one token at each row: evaluation reads log-probabilities of known texts and nothing else.
#include <cstdint>
#include <span>
#include <vector>

#include "ops/context.h"
#include "ops/head.h"

namespace vitrine {

struct LabelScore {
  float logprob = 0;        // log softmax(logits)[label]
  int32_t most_likely = 0;  // the token with the largest logit, the lower id of equals
};

/// Scores labels[i] at row i, in chunks of rows and of the vocabulary: of [rows, vocab_size] one chunk exists at a time.
///
/// x        [rows, d_model], of what residual() returned the rows that are read
/// labels   [rows], each in the vocabulary
///
/// Not recorded on a tape; shows no hook. A row with NaN gives NaN.
/// Errors: ShapeError for another number of labels; InputError for a label outside the vocabulary.
std::vector<LabelScore> label_scores(Context& ctx, const Tensor& x, const Head& head, std::span<const int32_t> labels);

/// The same of logits z [rows, vocab_size] that somebody has made already.
std::vector<LabelScore> label_scores(Context& ctx, const Tensor& z, std::span<const int32_t> labels);

}  // namespace vitrine
