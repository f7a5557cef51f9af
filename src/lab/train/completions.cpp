#include "train/completions.h"

#include <algorithm>

#include "ops/head.h"

namespace vitrine {
namespace {

constexpr double kSame = 1e-8;  // rewards of a group that are no further apart are alike

// Of rloo, the divergence from the model that learning began from is a part of the reward: of each sequence, log p - log p_ref.
std::vector<double> divergences_of(std::span<const Batch> batches) {
  std::vector<double> divergences;
  for (const Batch& batch : batches) {
    size_t row = 0;
    for (const int64_t length : batch.lengths) {
      double& sum = divergences.emplace_back();
      for (const size_t end = row + static_cast<size_t>(length); row < end; ++row)
        sum += static_cast<double>(batch.policy.sampled_by[row]) - static_cast<double>(batch.policy.reference[row]);
    }
  }
  return divergences;
}

}  // namespace

Batch batch_of(std::span<const Completion> completions, const PolicyOptions& options) {
  Batch batch;
  for (const Completion& c : completions) {
    const bool learned = !(options.drop_cut && c.cut);
    batch.tokens.insert(batch.tokens.end(), c.prompt.begin(), c.prompt.end());
    batch.tokens.insert(batch.tokens.end(), c.ids.begin(), c.ids.end() - 1);
    batch.labels.insert(batch.labels.end(), c.prompt.size() - 1, kNotScored);
    for (const int32_t id : c.ids) batch.labels.push_back(learned ? id : kNotScored);
    batch.lengths.push_back(static_cast<int64_t>(c.prompt.size() + c.ids.size() - 1));
    batch.prompts.push_back(c.document);
  }
  return batch;
}

RewardReport add_advantages(std::span<Completion> completions, std::span<Batch> batches, const PolicyOptions& o, Comm& comm) {
  double sums[7] = {};  // completions; rewards, and their squares; tokens; those cut; groups that are alike; scored tokens
  std::vector<double> rewards;
  for (const Completion& c : completions) {
    rewards.push_back(c.reward);
    sums[0] += 1;
    sums[1] += c.reward;
    sums[2] += c.reward * c.reward;
    sums[3] += static_cast<double>(c.ids.size());
    sums[4] += c.cut ? 1 : 0;
  }
  const auto group = static_cast<size_t>(o.group);
  for (size_t first = 0; first + group <= rewards.size(); first += group) {
    const auto [low, high] = std::ranges::minmax(std::span(rewards).subspan(first, group));
    sums[5] += high - low < kSame ? 1 : 0;
  }
  for (const Batch& batch : batches) sums[6] += static_cast<double>(scored_in(batch.labels));
  comm.all_reduce(sums);
  const double n = sums[0];
  const RewardReport report{.reward = sums[1] / n,
                            .deviation = deviation_of(sums[1], sums[2], n),
                            .same = sums[5] * static_cast<double>(group) / n,
                            .length = sums[3] / n,
                            .cut = sums[4] / n};
  if (o.loss == PolicyOptions::Loss::rloo && o.beta > 0) {
    const std::vector<double> divergences = divergences_of(batches);
    for (size_t i = 0; i < rewards.size(); ++i) rewards[i] -= o.beta * divergences[i];
  }
  const std::vector<double> advantages = advantages_of(rewards, o, report.deviation);
  size_t c = 0;
  for (Batch& batch : batches) {
    size_t row = 0;
    for (const int64_t length : batch.lengths) {
      const auto scored = static_cast<double>(scored_in(std::span(batch.labels).subspan(row, static_cast<size_t>(length))));
      row += static_cast<size_t>(length);
      completions[c].advantage = advantages[c];
      batch.policy.advantages.push_back(advantages[c++]);
      double weight = 1;
      if (o.loss == PolicyOptions::Loss::grpo) weight = 1 / std::max(scored, 1.0);
      if (o.loss == PolicyOptions::Loss::dapo) weight = n / std::max(sums[6], 1.0);
      if (o.loss == PolicyOptions::Loss::dr_grpo) weight = 1 / static_cast<double>(o.max_tokens);
      batch.policy.token_weights.push_back(weight);
    }
  }
  return report;
}

}  // namespace vitrine
