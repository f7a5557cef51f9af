#pragma once
// What one call of train() holds while it runs. Files by purpose: run_setup.cpp, run_checkpoints.cpp, run_validation.cpp; the
// loop is in train.cpp.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/checkpoint.h"
#include "train/comm.h"
#include "train/config.h"
#include "train/data/mixed_source.h"
#include "train/find_rate.h"
#include "train/layer_watch.h"
#include "train/learner.h"
#include "train/masking.h"
#include "train/reference.h"
#include "train/rollouts.h"
#include "train/teachers.h"
#include "train/train.h"

namespace vitrine {

inline constexpr char kFirstTokens[] =
    "; the first token of a document is never scored, and documents of one token hold no other";

class TrainRun {
 public:
  TrainRun(const TrainConfig& config, bool resume, const TrainEvents& events, Comm& comm);
  TrainResult go();
  RateCurve find_rate(const RateSearch& search, const std::function<bool(const RateCurve::Point& point)>& stepped);

 private:
  using Line = nlohmann::ordered_json;  // of metrics.jsonl
  bool first() const { return comm_.rank() == 0; }
  // Whether any rank says so.
  bool any(bool here) {
    double ranks = here ? 1 : 0;
    comm_.all_reduce({&ranks, 1});
    return ranks > 0;
  }
  // Nothing has become better for too long.
  bool stale() const {
    return config_.patience > 0 && progress_.best_step > 0 &&
           progress_.step - progress_.best_step >= config_.patience * config_.eval_every;
  }
  int64_t kept_checkpoints() const { return std::max(config_.keep, config_.average_last); }
  bool stop_here() const { return events_.stop && events_.stop(); }
  int64_t checkpoint_of(bool resume);
  int64_t find_checkpoint(bool resume) const;
  void check_history() const;
  Learner make_learner();
  void name_special_tokens();
  void name_padding();
  BatchOptions data_options(bool validation);
  void open_data();
  void check_contents() const;
  void keep_template();
  void find_reference();
  void find_mask();
  double state_bytes(double numbers) const;
  void check_sizes();
  void announce();
  void restore();
  void check_ranks();
  // Windows of the data that a step reads, on all ranks; of prompts, one for each group, every so many steps.
  double windows_of_step() const {
    const double by_window = config_.policy ? static_cast<double>(config_.policy->group * config_.policy->iterations) : 1;
    return static_cast<double>(config_.batch * config_.accumulate) / by_window;
  }
  std::vector<Batch> next_batches();
  std::vector<Batch> read_batches();
  void measure_what_is_due();
  bool evaluate(Line& line);
  void answer_tasks(Line& line);
  void sample();
  void save();
  void add_preference(const std::string& prefix, const PreferenceReport& report, Line& line) const;
  void add_layers(const StepReport& report, const LayerWatch& watch, Line& line) const;

  const TrainConfig& config_;
  const TrainEvents& events_;
  Comm& comm_;
  RunFolder folder_;
  int64_t checkpoint_;
  uint64_t base_ = 0;  // of an adapter: the fingerprint of the model that it stands beside; make_learner() sets it
  Learner learner_;
  Companions companions_;  // read at once: the checkpoint that a run goes on from is removed when newer ones are there
  std::optional<DataMix> data_;
  std::optional<DataMix> validation_;  // of one folder
  std::optional<MixedSource> source_;
  std::optional<Teachers> teachers_;
  std::optional<ReferenceLogprobs> reference_;
  std::optional<TokenMasker> masker_;
  std::optional<Rollouts> rollouts_;
  TrainIdentity identity_;
  std::vector<std::vector<int32_t>> prompts_;
  Schedule schedule_;
  int64_t steps_ = 0;
  double activation_bytes_ = 0;  // of a step, estimated
  TrainProgress progress_;
  int64_t unsaid_ = 0;  // a checkpoint's step that no line of metrics.jsonl tells of yet
  TrainResult result_;
};

}  // namespace vitrine
