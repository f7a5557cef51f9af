#pragma once
// What a run is drawn to besides the labels of its data: a teacher (distillation), an anchor (kl_to).
#include <memory>
#include <optional>

#include "train/config.h"
#include "train/data/mixed_source.h"
#include "train/target_cache.h"

namespace vitrine {

/// Opens teacher and anchor, checks that they fit, and makes them teachers of the learner. Must live while the learner steps.
class Teachers {
 public:
  /// Whether the configuration asks for any.
  static bool wanted(const TrainConfig& config) { return config.distill.has_value() || !config.kl_to.empty(); }

  /// Errors: FileError for models that cannot be opened; InputError for one whose vocabulary differs, in size or in pieces, or
  /// whose context is too short, and as TargetCache.
  Teachers(const TrainConfig& config, Learner& learner, const DataMix& data);

  /// The next batch of the run, its number counted from 0, with what the teacher expects where that is stored; or one that
  /// the learner continued itself. Errors: as BatchSource::next, TargetCache, continued_by.
  Batch next(MixedSource& source, uint64_t number);

  /// Adds the parts of the loss to a line of metrics: "ce" where it was computed, "kl", "kl_to"; "on_policy": the share of the
  /// batches that the learner continued.
  void describe(const StepReport& report, std::span<const Batch> batches, nlohmann::ordered_json& line) const;

  /// Of teacher and anchor together; 0 without.
  uint64_t fingerprint() const;

  /// Errors: as TargetCache::check_space, for a run of so many batches.
  void check_space(uint64_t batches) const;

 private:
  const Model& open(std::unique_ptr<Engine>& to, const std::string& name, const char* key, const DataMix& data);
  void add_targets(Batch& batch, uint64_t first);

  const TrainConfig& config_;
  Learner& learner_;
  std::vector<std::string> names_;  // of the teachers
  std::unique_ptr<Engine> teacher_, anchor_;
  std::unique_ptr<TargetCache> cache_;
};

}  // namespace vitrine
