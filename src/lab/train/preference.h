#pragma once
// Learning from pairs of answers, of which people preferred one: direct preference optimization.
#include <span>
#include <vector>

#include "ops/context.h"
#include "ops/head.h"
#include "train/data/batch_source.h"

namespace vitrine {

/// The section `dpo` of a training configuration.
struct PreferenceOptions {
  double beta = 0.1;  // how strongly the model is held to the one that learning began from; above 0
};

/// Over pairs: sums, or means where they were divided. A reward is beta (log p(answer) - log p_reference(answer)).
struct PreferenceReport {
  double chosen_reward = 0, rejected_reward = 0;
  double accuracy = 0;  // pairs whose chosen answer has the higher reward
};

/// log p(answer | prompt) of each sequence: the sum over its scored rows.
///
/// x        [T, d_model], what residual() returned for the batch's sequences
/// returns  one number for each of batch.lengths; 0 where nothing is scored
///
/// Errors: as cross_entropy.
std::vector<double> sequence_logprobs(Context& ctx, const Tensor& x, const Head& head, const Batch& batch);

/// The mean over the batch's pairs of
///   -log sigmoid(beta ((log p(chosen) - log p_ref(chosen)) - (log p(rejected) - log p_ref(rejected))))
/// (arXiv:2305.18290, equation 7), where batch.reference has log p_ref of each sequence.
///
/// returns  one number [1]; `report` gets the sums over the pairs
///
/// Backward: x, W, bias. Errors: as cross_entropy.
Tensor preference_loss(Context& ctx, const Tensor& x, const Head& head, const Batch& batch, const PreferenceOptions& options,
                       PreferenceReport& report);

}  // namespace vitrine
