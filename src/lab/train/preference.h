#pragma once
// Learning from answers that people preferred: direct preference optimization and its relatives, from pairs or single answers.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "ops/context.h"
#include "ops/head.h"
#include "train/data/batch_source.h"

namespace vitrine {

/// The section `dpo`, `cpo`, `orpo`, `kto` or `reward_model` of a training configuration.
struct PreferenceOptions {
  /// By z, how much more the model wants the chosen answer than the rejected one:
  ///   sigmoid  -log sigmoid(beta z)           arXiv:2305.18290, 2401.08417
  ///   hinge    max(0, 1 - beta z)             arXiv:2305.10425
  ///   ipo      (z - 1 / (2 beta))²            arXiv:2310.12036
  ///   simpo    -log sigmoid(beta z - gamma)   arXiv:2405.14734
  ///   odds     -beta log sigmoid(z)           arXiv:2403.07691
  /// Of unpaired examples, by z, how much more the model wants the answer than the reference does:
  ///   kto       desirable: 1 - sigmoid(beta (z - kl)), other: sigmoid(beta (z - kl))   arXiv:2402.01306
  ///   apo_zero  the same without kl                                                     arXiv:2408.06266
  /// with kl = max(0, mean log p - log p_ref of each prompt with the answer of another example).
  /// Of pairs, by the rewards r that a reward model (model/reward_model.h) gives the sequences:
  ///   reward   -log sigmoid(r(chosen) - r(rejected)) + center (r(chosen) + r(rejected))²   arXiv:2203.02155, 2312.09244
  enum class Loss : uint8_t { sigmoid, hinge, ipo, simpo, odds, kto, apo_zero, reward };
  std::string section = "dpo";
  Loss loss = Loss::sigmoid;
  double beta = 0.1;                      // above 0
  bool reference = true;                  // log p(answer) counts beyond that of the model that learning began from
  double gamma = 0;                       // of simpo: by how much the chosen answer is to be ahead
  double nll = 0;                         // what the cross-entropy of the chosen answers counts for beside the loss
  bool nll_prompt = false;                // the prompt's tokens are part of it
  double desirable = 1, undesirable = 1;  // of unpaired examples: what the loss of one counts for

  double center = 0;     // of reward
  int32_t padding = -1;  // of reward: as padding_of()

  /// Whether the data are unpaired preferences, not pairs.
  bool unpaired() const { return loss == Loss::kto || loss == Loss::apo_zero; }
  /// Whether the loss of a pair or example depends on the others of its step (PreferenceTotals).
  bool needs_totals() const { return nll > 0 || loss == Loss::kto; }

  /// Whether an answer's log p is the mean over its tokens, not their sum.
  bool averaged() const { return loss == Loss::ipo || loss == Loss::simpo || loss == Loss::odds; }
  bool operator==(const PreferenceOptions&) const = default;
};

/// What may not change in a run: "beta 0.1", or with more where it is not dpo's first loss.
std::string preference_text(const PreferenceOptions& options);

/// Sums over pairs or examples, or means over those that have a number. A reward is beta · log p(answer), beyond the reference's
/// where there is one; of simpo, orpo and cpo's ipo with the mean over the answer's tokens; of a reward model what it gives.
struct PreferenceReport {
  double chosen_reward = 0, rejected_reward = 0;  // of unpaired examples: desirable, and not
  double accuracy = 0;                            // pairs whose chosen answer has the higher reward
  double chosen = 0, rejected = 0;                // answers of each kind, never divided
  double kl = 0;                                  // of kto
};
/// The means of sums.
PreferenceReport means_of(PreferenceReport sums);

/// What the loss of one pair or example depends on beyond itself: over all that the loss is a mean over, whatever parts it has.
struct PreferenceTotals {
  double sums[3] = {};  // pairs or examples; nll_rows(); of prompts with the answers of other examples, log p - log p_ref

  double rows_by_pair() const { return sums[1] / std::max(1.0, sums[0]); }
  double kl() const {
    const double mean = sums[2] / std::max(1.0, sums[0]);
    return mean < 0 ? 0 : mean;  // NaN stays
  }
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

/// The mean of the loss over the batch's pairs or unpaired examples, where batch.reference has log p_ref of each sequence if
/// options.reference.
///   z = s(chosen) - s(rejected),   s = log p - log p_ref,  divided by the answer's tokens where averaged();
///   of odds: s = log(p / (1 - p)) of p = exp(mean log p)
/// and the cross-entropy of the chosen answers times options.nll. Of unpaired examples, each has one sequence, and z = s.
///
/// totals   of the whole step: the cross-entropy is a mean over all of its tokens, and kl one over its examples
/// returns  one number [1]; `report` gets the sums
///
/// Backward: x, W, bias. Errors: as cross_entropy.
Tensor preference_loss(Context& ctx, const Tensor& x, const Head& head, const Batch& batch, const PreferenceOptions& options,
                       const PreferenceTotals& totals, PreferenceReport& report);

}  // namespace vitrine
