#pragma once
// Learning from pairs of answers, of which people preferred one: direct preference optimization and its relatives.
#include <span>
#include <string>
#include <vector>

#include "ops/context.h"
#include "ops/head.h"
#include "train/data/batch_source.h"

namespace vitrine {

/// The section `dpo`, `cpo` or `orpo` of a training configuration.
struct PreferenceOptions {
  /// By z, how much more the model wants the chosen answer than the rejected one:
  ///   sigmoid  -log sigmoid(beta z)           arXiv:2305.18290, 2401.08417
  ///   hinge    max(0, 1 - beta z)             arXiv:2305.10425
  ///   ipo      (z - 1 / (2 beta))²            arXiv:2310.12036
  ///   simpo    -log sigmoid(beta z - gamma)   arXiv:2405.14734
  ///   odds     -beta log sigmoid(z)           arXiv:2403.07691
  enum class Loss : uint8_t { sigmoid, hinge, ipo, simpo, odds };
  std::string section = "dpo";
  Loss loss = Loss::sigmoid;
  double beta = 0.1;        // above 0
  bool reference = true;    // log p(answer) counts beyond that of the model that learning began from
  double gamma = 0;         // of simpo: by how much the chosen answer is to be ahead
  double nll = 0;           // what the cross-entropy of the chosen answers counts for beside the loss
  bool nll_prompt = false;  // the prompt's tokens are part of it

  /// Whether an answer's log p is the mean over its tokens, not their sum.
  bool averaged() const { return loss == Loss::ipo || loss == Loss::simpo || loss == Loss::odds; }
  bool operator==(const PreferenceOptions&) const = default;
};

/// What may not change in a run: "beta 0.1", or with more where it is not dpo's first loss.
std::string preference_text(const PreferenceOptions& options);

/// Over pairs: sums, or means where they were divided. A reward is beta · log p(answer), beyond the reference's where there is
/// one; of simpo, orpo and cpo's ipo with the mean over the answer's tokens.
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

/// Rows of the batch's chosen answers over which PreferenceOptions::nll is a mean; 0 where it does not count.
int64_t nll_rows(const Batch& batch, const PreferenceOptions& options);

/// The mean of the loss over the batch's pairs, where batch.reference has log p_ref of each sequence if options.reference.
///   z = s(chosen) - s(rejected),   s = log p - log p_ref,  divided by the answer's tokens where averaged();
///   of odds: s = log(p / (1 - p)) of p = exp(mean log p)
/// and the cross-entropy of the chosen answers times options.nll.
///
/// rows_by_pair  nll_rows() of the whole step over its pairs: the cross-entropy is a mean over tokens, whatever parts a step has
/// returns       one number [1]; `report` gets the sums over the pairs
///
/// Backward: x, W, bias. Errors: as cross_entropy.
Tensor preference_loss(Context& ctx, const Tensor& x, const Head& head, const Batch& batch, const PreferenceOptions& options,
                       double rows_by_pair, PreferenceReport& report);

}  // namespace vitrine
