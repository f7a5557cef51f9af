#pragma once
// What a model wrote after prompts, with rewards, as batches that policy_loss() learns from.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/comm.h"
#include "train/policy.h"

namespace vitrine {

/// One of a group. Completions of one group follow each other.
struct Completion {
  uint64_t document = 0;             // of its prompt, in the data
  std::vector<int32_t> prompt, ids;  // ids: with the end token, if it came
  std::string text = {};             // without it
  bool cut = false;                  // max_tokens ended it
  double reward = 0, advantage = 0;
};

/// A sequence for each: the completion's tokens are scored, unless it was cut and PolicyOptions::drop_cut is set.
Batch batch_of(std::span<const Completion> completions, const PolicyOptions& options);

/// Over the completions of all ranks.
struct RewardReport {
  double reward = 0, deviation = 0;  // mean and deviation of the rewards
  double same = 0;                   // share of the groups whose rewards are all alike, which teach nothing
  double length = 0;                 // mean number of tokens
  double cut = 0;                    // share that max_tokens ended
};

/// From the rewards the advantages, and from these the batches' targets. The batches are those of the completions in order, and
/// of one step; rloo with beta above 0 reads PolicyTargets::sampled_by and reference.
RewardReport add_advantages(std::span<Completion> completions, std::span<Batch> batches, const PolicyOptions& options,
                            Comm& comm);

}  // namespace vitrine
