#pragma once
// What a model writes to learn from: completions of prompts by the scheduler that serves, rewarded by the user's command.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/completions.h"
#include "train/config.h"
#include "train/data/mixed_source.h"

namespace vitrine {

/// The batches of a run whose configuration has `grpo`. A step's completions are those of one set of weights; with
/// PolicyOptions::iterations, several steps learn from them.
class Rollouts {
 public:
  /// Opens the model that learning began from where beta is above 0, and gives the learner the options of its loss.
  /// Errors: InputError for prompts that leave no room for max_tokens in sequence_length, for a model without a tokenizer, and
  /// for beta without a model to begin from; as open_starting_model, continue_adapter and Engine.
  Rollouts(const TrainConfig& config, Learner& learner, const DataMix& data);
  ~Rollouts();

  /// Prompts of a batch of this rank.
  static int64_t prompts_of_batch(const TrainConfig& config, int ranks);

  /// The batches of the step after `step`: new ones where `step` is a multiple of iterations, else those of the last call.
  /// Under Numerics::exact no token depends on which sequences ran beside it, so the same weights and prompts give the same
  /// batches. Errors: as MixedSource::next, run_reward_command; RunError for a completion that failed; on all ranks alike.
  std::vector<Batch> next(MixedSource& source, int64_t step);
  /// Whether the next call makes new ones: a checkpoint of now has all that a run needs to go on.
  bool due(int64_t step) const { return step % config_.policy->iterations == 0; }

  /// The mean of the last call's completions.
  double reward() const { return report_.reward; }
  /// Adds what the rewards of the last call's completions were to a line of metrics.
  void describe(const StepReport& report, nlohmann::ordered_json& line) const;
  /// Some of them, for people: [{"prompt", "completion", "reward", "advantage"}], the first group of this rank.
  nlohmann::ordered_json samples() const;

  /// Of the model that learning began from, if it is read; else 0.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  void open_start();
  std::vector<Completion> complete(std::span<const Batch> prompts, int64_t step);
  OrderedJson line_of(const Completion& completion) const;
  void add_rewards();

  const TrainConfig& config_;
  Learner& learner_;
  const DataMix& data_;
  std::unique_ptr<Engine> start_;  // the model that learning began from; null: nothing reads it
  uint64_t fingerprint_ = 0;
  std::vector<Completion> completions_;
  std::vector<Batch> batches_;
  RewardReport report_;
};

}  // namespace vitrine
