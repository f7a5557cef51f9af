#pragma once
// Learning from rewards of what the model itself wrote: the loss of GRPO and its relatives.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/context.h"
#include "ops/head.h"
#include "train/data/batch_source.h"

namespace vitrine {

/// The section `grpo` of a training configuration.
struct PolicyOptions {
  // What is written
  int64_t group = 8;       // completions of each prompt
  int64_t max_tokens = 0;  // of a completion
  double temperature = 1;  // of sampling, and of the probabilities that are learned
  bool drop_cut = false;   // completions that max_tokens cut are not learned from
  // What it is rewarded by
  std::string reward = {};     // a command
  double reward_timeout = 60;  // seconds
  // What is learned
  /// What the tokens of a completion count for, of B completions in a step:
  ///   grpo     1 / (B · its tokens)       arXiv:2402.03300
  ///   dapo     1 / all tokens of the step  arXiv:2503.14476
  ///   dr_grpo  1 / (B · max_tokens)       arXiv:2503.20783
  ///   rloo     1 / B, with the ratio of the whole completion, and the divergence as part of the reward: arXiv:2402.14740
  enum class Loss : uint8_t { grpo, dapo, dr_grpo, rloo };
  Loss loss = Loss::grpo;
  /// The deviation that the advantages of a group are divided by: the group's, that of all rewards of the step, or none.
  enum class Scale : uint8_t { group, batch, none };
  Scale scale = Scale::group;
  double beta = 0;               // what the divergence from the model that learning began from counts for
  double low = 0.2, high = 0.2;  // the ratio counts from 1 - low to 1 + high
  int64_t iterations = 1;        // steps with the same completions

  bool operator==(const PolicyOptions&) const = default;
};

/// What may not change in a run.
std::string policy_text(const PolicyOptions& options);

/// What each completion's reward is beyond what others of its group got. Rewards of one group follow each other.
///   rloo      reward - mean of the others' rewards
///   others    (reward - mean) / (deviation + 1e-4)
/// deviation_of_all: of all rewards of the step, for Scale::batch.
std::vector<double> advantages_of(std::span<const double> rewards, const PolicyOptions& options, double deviation_of_all);

/// The deviation of numbers with these sums, n - 1 in the denominator; 0 for fewer than two.
double deviation_of(double sum, double sum_of_squares, double n);

/// Over scored tokens: sums, or means where they were divided.
struct PolicyReport {
  double entropy = 0;  // of what the model expected there
  double kl = 0;       // from the reference: exp(d) - d - 1, d = log p_ref - log p
  double clipped = 0;  // tokens whose ratio was cut off
  double tokens = 0;
};

/// The mean over the batch's sequences of
///   w · sum over scored rows of (-min(r A, clip(r, 1 - low, 1 + high) A) + beta r (exp(d) - d - 1))
/// with A and w of the sequence (Batch::policy), r = p / p when it was sampled, d = log p_ref - log p. Of rloo, r is that of the
/// whole sequence, and beta is not read.
///
/// returns  one number [1]; `report` gets sums over the scored rows
///
/// Backward: x, W, bias. Errors: as cross_entropy.
Tensor policy_loss(Context& ctx, const Tensor& x, const Head& head, const Batch& batch, const PolicyOptions& options,
                   PolicyReport& report);

}  // namespace vitrine
