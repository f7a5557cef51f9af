// The checkpoints of a run: which one it goes on from, what may not change then, and writing them.
#include <utility>

#include "base/error.h"
#include "model/fingerprint.h"
#include "train/starting_model.h"
#include "train/train_run.h"

namespace vitrine {
namespace {

// What learns besides A and B.
std::string more_of(const AdapterOptions& o) {
  std::string more;
  if (o.dora) more += ", dora";
  if (o.bias != AdapterOptions::Bias::none) more += o.bias == AdapterOptions::Bias::all ? ", bias all" : ", bias lora_only";
  for (const std::string& saved : o.saved) more += ", whole " + saved;
  for (const int64_t token : o.tokens) more += ", token " + std::to_string(token);
  if (o.tied) more += ", tied";
  return more;
}

// What may not change about the adapter of a run.
std::string lora_text(const TrainConfig& config, uint64_t base) {
  const AdapterOptions& o = *config.lora;
  const std::string beside = ", beside a model with the numbers " + hexadecimal(base);
  if (!config.adapter.empty()) return "of " + config.adapter + beside;
  std::string targets;
  for (const std::string& target : o.targets) targets += (targets.empty() ? "" : ", ") + target;
  return "rank " + std::to_string(o.rank) + ", alpha " + Json(o.alpha).dump() + ", dropout " + Json(o.dropout).dump() +
         (o.rslora ? ", rslora" : "") + more_of(o) + ", of " + targets + beside;
}

std::string masked_text(const MaskingOptions& o, int32_t mask) {
  return "share " + Json(o.share).dump() + ", mask " + Json(o.mask).dump() + ", random " + Json(o.random).dump() + ", by token " +
         std::to_string(mask);
}

std::string from_text(const Rollouts& rollouts) {
  const uint64_t fingerprint = rollouts.fingerprint();
  return fingerprint == 0 ? "" : ", reference model " + hexadecimal(fingerprint);
}

const char* name_of(OptimizerOptions::Kind kind) {
  constexpr const char* kOptimizers[] = {"adamw", "sgd", "muon", "normuon", "soap"};
  return kOptimizers[static_cast<size_t>(kind)];
}

}  // namespace

// The step to go on from, as rank 0 finds it; -1: a new run.
int64_t TrainRun::checkpoint_of(bool resume) {
  double step = first() ? static_cast<double>(find_checkpoint(resume)) : -1;
  comm_.all_reduce({&step, 1}, Comm::Fold::largest);
  return static_cast<int64_t>(step);
}

int64_t TrainRun::find_checkpoint(bool resume) const {
  const std::vector<int64_t> steps = folder_.steps();
  if (!resume && folder_.used())
    throw InputError(config_.path + ": out: " + config_.out + " holds a run already" +
                     (steps.empty() ? "" : ", up to step " + std::to_string(steps.back())) +
                     ". Go on with it by --resume, or name another folder");
  if (steps.empty()) {
    check_history();
    return -1;
  }
  folder_.verify(steps.back());
  return steps.back();
}

// A run that was killed before its first checkpoint begins again; one whose checkpoints are gone has a history to lose.
void TrainRun::check_history() const {
  const RunFolder::History history = folder_.history();
  if (history.measured >= 0 && history.saved >= 0)
    throw InputError(config_.path + ": out: " + config_.out + " has no checkpoint, and its metrics.jsonl goes up to step " +
                     std::to_string(history.measured) + ", although that of step " + std::to_string(history.saved) +
                     " was saved. Put the checkpoints back, remove metrics.jsonl to begin anew, or name another folder");
}

void TrainRun::restore() {
  identity_ = {.seed = config_.seed,
               .sequence_length = config_.sequence_length,
               .batch = config_.batch,
               .accumulate = config_.accumulate,
               .documents = config_.documents,
               .data_tokens = data_->tokens(),
               .data_checksum = data_->checksum(),
               .data_path = data_->path(),
               .data_weights = data_->weights_text(),
               .optimizer = name_of(config_.optimizer.kind),
               .preference = config_.preference ? config_.preference->section : "",
               .preference_by = config_.preference ? preference_text(*config_.preference) : "",
               .grpo = rollouts_ ? policy_text(*config_.policy) + from_text(*rollouts_) : "",
               .masked = masker_ ? masked_text(*config_.masked, masker_->mask()) : "",
               .lora = config_.lora ? lora_text(config_, base_) : "",
               .model_path = config_.model,
               .model_config = given_model_config(config_, checkpoint_ >= 0)};
  if (checkpoint_ >= 0) {
    progress_ = folder_.restore(checkpoint_, learner_, identity_);
    source_->seek(progress_.position);
    result_.checkpoint = folder_.step_path(checkpoint_);
    unsaid_ = checkpoint_;
  }
  if (validation_) {
    std::string measured = hexadecimal(validation_->checksum()) + "/" + std::to_string(config_.eval_batches);
    if (config_.eval_tokens > 0) measured += "/" + std::to_string(config_.eval_tokens) + " tokens";
    if (!progress_.best_on.empty() && progress_.best_on != measured) progress_.best_step = 0;
    progress_.best_on = std::move(measured);
  }
  if (!first()) return;
  folder_.set_config(config_.text);
  folder_.also_write(config_.metrics);
  folder_.rewind_metrics(checkpoint_);
  // The run may have been killed between a checkpoint and its links.
  if (checkpoint_ >= 0) folder_.settle(checkpoint_, config_.best ? progress_.best_step : 0, kept_checkpoints());
}

void TrainRun::save() {
  result_.checkpoint = folder_.step_path(progress_.step);
  unsaid_ = progress_.step;
  if (!first()) return learner_.each_state();
  TrainProgress kept = progress_;
  if (!config_.best) kept.best_step = 0;
  folder_.save(learner_, companions_, kept, identity_);
  const std::string unlinked = folder_.settle(kept.step, kept.best_step, kept_checkpoints());
  if (events_.saved) events_.saved(progress_.step, result_.checkpoint, unlinked);
}

}  // namespace vitrine
