#include "train/train.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "ops/product_peak.h"
#include "train/one_step.h"
#include "train/recent_steps.h"
#include "train/step_cost.h"
#include "train/train_run.h"

namespace vitrine {

// Gradient norm and |change| / |weight| of every block, and of what lies outside the blocks.
// Then what the pass showed: gradients of the stream, activations around each norm.
void TrainRun::add_layers(const StepReport& report, const LayerWatch& watch, Line& line) const {
  for (const OneStep::Part& part : parts_of(learner_.parameters(), report)) {
    line["layer_grad_norm"][part.name] = part.gradient_norm;
    line["layer_update_ratio"][part.name] = part.update_ratio;
  }
  const std::vector<double>& stream = watch.stream_gradients();
  for (size_t i = 0; learner_.recomputed_layers() == 0 && i < stream.size(); ++i)
    line["layer_stream_grad_norm"][i + 1 < stream.size() ? "blocks." + std::to_string(i) : "end"] = stream[i];
  const auto json = [](const ActivationMoments& m) { return Line{{"mean", m.mean}, {"variance", m.variance}}; };
  for (const LayerWatch::Norm& norm : watch.norms())
    line["layer_activation"][norm.name] = {{"before", norm.before ? json(*norm.before) : Line()}, {"after", json(norm.after)}};
}

void TrainRun::add_preference(const std::string& prefix, const PreferenceReport& report, Line& line) const {
  if (report.chosen > 0) line[prefix + "reward_chosen"] = report.chosen_reward;
  if (report.rejected > 0) line[prefix + "reward_rejected"] = report.rejected_reward;
  if (report.chosen > 0 && report.rejected > 0) line[prefix + "reward_margin"] = report.chosen_reward - report.rejected_reward;
  if (!config_.preference->unpaired()) line[prefix + "reward_accuracy"] = report.accuracy;
  if (config_.preference->loss == PreferenceOptions::Loss::kto) line[prefix + "kl"] = report.kl;
}

// The reference of dpo and kto: what an earlier process of the run computed, or computed now.
void TrainRun::find_reference() {
  if (!reference_) return;
  const DataMix* const validation = validation_ ? &*validation_ : nullptr;
  if (checkpoint_ >= 0) return reference_->read(*data_, validation);
  result_.stopped = !reference_->compute(learner_, *data_, validation, [&](double share) {
    if (first() && events_.referred) events_.referred(share);
    return !any(stop_here());
  });
}

std::vector<Batch> TrainRun::read_batches() {
  if (rollouts_) return rollouts_->next(*source_, progress_.step);
  std::vector<Batch> batches;
  for (int64_t i = 0; i < config_.accumulate; ++i) {
    const auto number = static_cast<uint64_t>(progress_.step * config_.accumulate + i);
    Batch& batch = batches.emplace_back(teachers_ ? teachers_->next(*source_, number) : source_->next());
    if (reference_) reference_->add_to(batch, false);
    if (masker_) masker_->hide(batch, number, batch.first_row);
  }
  return batches;
}

// The batches of a step. Those in which nothing is scored (documents of one token) are skipped, on all ranks alike.
std::vector<Batch> TrainRun::next_batches() {
  const auto limit = static_cast<int64_t>(source_->batches_per_epoch()) + config_.accumulate;
  for (int64_t passed = 0; passed <= limit; passed += config_.accumulate) {
    std::vector<Batch> batches = read_batches();
    double scored = 0;
    for (const Batch& batch : batches) scored += static_cast<double>(scored_in(batch.labels));
    comm_.all_reduce({&scored, 1});
    if (scored > 0) return batches;
    if (rollouts_)
      throw RunError(config_.path +
                     ": grpo.drop_cut: max_tokens cut every answer of a step, so there is nothing to learn from. "
                     "Raise max_tokens, or leave drop_cut out");
  }
  throw InputError(data_->path() + ": no token of a whole epoch is scored, so there is nothing to learn from" + kFirstTokens);
}

TrainResult TrainRun::go() {
  const auto due = [](int64_t every, int64_t step) { return every > 0 && step % every == 0; };
  find_reference();
  if (!result_.stopped) measure_what_is_due();
  const ModelShape shape = learner_.engine().shape();
  const OpenedModel& opened = learner_.engine().opened();
  double frozen = 0;  // norms and positions, which are few, included
  if (opened.adapter != nullptr)
    frozen = static_cast<double>(parameter_count(*opened.model) - (shape.tied ? 0 : shape.vocab_size * shape.d_model));
  RecentSteps clock([&] { return product_flops_per_s(learner_.engine().context()); });
  double step_seconds = 0, comm_seconds = 0;
  while (progress_.step < steps_ && !result_.stopped && !stale()) {
    std::vector<Batch> batches;
    try {
      batches = next_batches();
    } catch (const RunError& error) {
      if (!rollouts_ || progress_.step == std::max<int64_t>(0, unsaid_)) throw;
      save();  // what was learned is not lost with a reward
      throw RunError(std::string(error.what()) + "\n  The run is saved at step " + std::to_string(progress_.step) +
                     ": continue with --resume");
    }
    const bool layers = due(config_.layers_every, progress_.step + 1);
    std::optional<LayerWatch> watch;
    if (layers) watch.emplace(learner_.engine().model());
    const Stopwatch watched;
    const double comm_before = comm_.seconds();
    StepReport report = learner_.step(batches, schedule_.at(progress_.step), layers, watch ? &*watch : nullptr);
    if (rollouts_) report.reward = rollouts_->reward();
    const double took = watched.ms() / 1000, waited = comm_.seconds() - comm_before;
    step_seconds += took;
    comm_seconds += waited;
    double flop = 0;
    for (const Batch& batch : batches)
      flop += step_flop(learner_.parameters(), learner_.engine().model(),
                        batch.desirable.empty() ? batch.lengths : halves_of(batch, 0).lengths, frozen);
    progress_.step = report.step;
    progress_.tokens += report.tokens;
    progress_.position = source_->position();
    result_.loss = report.loss;
    const TrainEvents::Rate rate = clock.step(report.tokens, flop, steps_ - progress_.step);
    Line line = {{"step", report.step},
                 {"tokens", progress_.tokens},
                 {"loss", report.loss},
                 {"lr", report.lr},
                 {"grad_norm", report.gradient_norm},
                 {"tokens_per_s", rate.tokens_per_s},
                 {"peak_share", rate.peak_share ? Line(*rate.peak_share) : Line()}};
    if (unsaid_ > 0) line["saved"] = std::exchange(unsaid_, 0);
    if (comm_.size() > 1) line["comm_share"] = waited / took;
    if (teachers_) teachers_->describe(report, batches, line);
    if (rollouts_) rollouts_->describe(report, line);
    if (rollouts_ && due(config_.sample_every, progress_.step)) line["samples"] = rollouts_->samples();
    if (report.preference) add_preference("", *report.preference, line);
    if (watch) add_layers(report, *watch, line);
    if (first() && events_.stepped) events_.stepped(report, rate);
    const bool last = progress_.step == steps_;
    bool measured = true;
    try {
      if (due(config_.tasks_every, progress_.step) || (last && config_.tasks_every > 0)) answer_tasks(line);
      if (due(config_.eval_every, progress_.step) || (last && config_.eval_every > 0)) measured = evaluate(line);
      if (measured && !last && stale() && config_.tasks_every > 0 && !due(config_.tasks_every, progress_.step))
        answer_tasks(line);  // it is the last step after all
    } catch (const RunError&) {
      if (first()) folder_.add_metrics(line.dump());  // the step was learned
      throw;
    }
    if (first()) folder_.add_metrics(line.dump());  // before the checkpoint: a resumed run keeps the lines up to it
    progress_.validation_due = measured ? "" : line.dump();
    const bool whole = !rollouts_ || rollouts_->due(progress_.step);  // no completions are left to learn from
    const bool saved = !measured || last || stale() || due(config_.save_every, progress_.step) ||
                       (config_.best && progress_.best_step == progress_.step);
    if (saved) save();
    if (due(config_.sample_every, progress_.step)) sample();
    result_.stopped = !measured || any(!last && whole && stop_here());
    if (result_.stopped && !saved) save();
    clock.restart();  // validation, samples and checkpoints are no part of the rate
  }
  result_.early = progress_.step < steps_ && stale();
  result_.step = progress_.step;
  result_.tokens = progress_.tokens;
  if (first() && config_.average_last > 0 && (progress_.step >= steps_ || result_.early)) {
    const std::vector<int64_t> averaged = folder_.average(static_cast<size_t>(config_.average_last));
    result_.average = folder_.average_path();
    if (events_.averaged) events_.averaged(averaged, result_.average);
  }
  result_.best_step = config_.best ? progress_.best_step : 0;
  result_.best_loss = progress_.best_loss;
  result_.comm_share = comm_seconds / std::max(step_seconds, 1e-9);
  return result_;
}

TrainResult train(const TrainConfig& config, bool resume, const TrainEvents& events, Comm* comm) {
  Comm alone;
  return TrainRun(config, resume, events, comm != nullptr ? *comm : alone).go();
}

}  // namespace vitrine
