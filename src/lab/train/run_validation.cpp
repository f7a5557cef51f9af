// What a run measures between steps: the loss on validation data, and samples.
#include <algorithm>
#include <numbers>
#include <optional>
#include <utility>

#include "base/error.h"
#include "generate/generate.h"
#include "ops/layout.h"
#include "train/train_run.h"

namespace vitrine {

// Before the first step, or where a stop kept the validation of the checkpoint's step from being done.
void TrainRun::measure_what_is_due() {
  Line line = {{"step", 0}, {"tokens", 0}};
  if (checkpoint_ >= 0) line = Line::parse(std::exchange(progress_.validation_due, ""), nullptr, false);
  if (!validation_ || line.is_discarded()) return;
  result_.stopped = !evaluate(line);
  if (result_.stopped || !first()) return;
  folder_.rewind_metrics(progress_.step - 1);  // the step has a line without its validation
  folder_.add_metrics(line.dump());
  if (config_.best && checkpoint_ >= 0 && progress_.best_step == checkpoint_)
    folder_.settle(checkpoint_, checkpoint_, kept_checkpoints());
}

// Returns false if it was stopped before the end; then nothing is known.
bool TrainRun::evaluate(Line& line) {
  const BatchSource source(validation_->parts()[0].data, data_options(true));
  // By tokens the same windows are measured whatever a batch is.
  const auto asked = static_cast<uint64_t>(ceil_div(config_.eval_tokens, config_.sequence_length));
  const uint64_t windows = asked > 0 ? std::min(asked, source.windows_per_epoch()) : source.windows_per_epoch();
  const auto all = ceil_div(static_cast<int64_t>(windows), config_.batch);
  const int64_t batches = config_.eval_batches > 0 ? std::min(config_.eval_batches, all) : all;
  const auto own = static_cast<uint64_t>(config_.batch / comm_.size());  // windows of a batch of this rank
  const uint64_t before = own * static_cast<uint64_t>(comm_.rank());
  const auto batch_at = [&](int64_t i) {
    Batch batch;
    const uint64_t from = static_cast<uint64_t>(i * config_.batch) + before;
    batch.first_row = before * static_cast<uint64_t>(source.rows_per_window());
    for (uint64_t window = from; window < std::min(from + own, windows); ++window) source.add_window({0, window}, batch);
    if (reference_) reference_->add_to(batch, true);
    if (masker_)
      masker_->hide(batch, kValidationMasks,
                    static_cast<uint64_t>(i * config_.batch * config_.sequence_length) + batch.first_row);
    return batch;
  };
  PreferenceTotals totals[2];  // of all pairs, whatever a batch is; of the averaged weights
  double sums[9] = {};         // loss, and scored tokens or pairs; of the averaged weights; preferences
  for (const bool first_pass : {true, false}) {
    if (first_pass && !(config_.preference && config_.preference->needs_totals())) continue;
    for (int64_t i = 0; i < batches; ++i) {
      if (any(stop_here())) return false;
      const Batch batch = batch_at(i);
      for (const bool averaged : {false, true}) {
        if (averaged && !config_.ema) continue;
        if (first_pass) {
          learner_.add_totals(batch, totals[averaged ? 1 : 0], averaged);
          continue;
        }
        const Learner::Sum part = learner_.evaluate(batch, averaged, totals[averaged ? 1 : 0]);
        sums[averaged ? 2 : 0] += part.loss;
        sums[averaged ? 3 : 1] += static_cast<double>(part.tokens);
        if (averaged) continue;
        sums[4] += part.preference.chosen_reward;
        sums[5] += part.preference.rejected_reward;
        sums[6] += part.preference.accuracy;
        sums[7] += part.preference.chosen;
        sums[8] += part.preference.rejected;
      }
    }
    if (first_pass)
      for (PreferenceTotals& one : totals) comm_.all_reduce(one.sums);
  }
  comm_.all_reduce(sums);
  if (sums[1] == 0)
    throw InputError(config_.validation_data + ": no token of the validation data is scored, so it has no loss" + kFirstTokens);
  const double loss = sums[0] / sums[1];
  const bool best = progress_.best_step == 0 || loss < progress_.best_loss;
  line["val_loss"] = loss;
  if (config_.preference) add_preference("val_", means_of({sums[4], sums[5], sums[6], sums[7], sums[8], totals[0].kl()}), line);
  const TokenData& data = validation_->parts()[0].data;
  if (data.text_bytes() > 0 && !data.masked() && !masker_) {
    const uint64_t first_ones = config_.documents ? data.documents() : 1;  // which are never scored
    line["val_bits_per_byte"] =
        loss / std::numbers::ln2 * static_cast<double>(data.tokens() - first_ones) / static_cast<double>(data.text_bytes());
  }
  if (config_.ema) line["val_loss_ema"] = sums[2] / std::max(1.0, sums[3]);
  result_.validation_loss = loss;
  if (best && progress_.step > 0) {
    progress_.best_step = progress_.step;
    progress_.best_loss = loss;
  }
  if (first() && events_.evaluated) events_.evaluated(progress_.step, loss, best);
  return true;
}

void TrainRun::answer_tasks(Line& line) {
  if (!first()) return;
  const std::vector<std::pair<std::string, double>> values = events_.measure(learner_.engine());
  for (const auto& [name, value] : values) line[name] = value;
  if (events_.measured) events_.measured(progress_.step, values);
}

void TrainRun::sample() {
  if (!first()) return;
  Engine& engine = learner_.engine();
  if (rollouts_ && events_.sampled)
    for (const auto& sample : rollouts_->samples())
      events_.sampled(progress_.step,
                      sample.at("prompt").is_string() ? sample.at("prompt").get<std::string>() : sample.at("prompt").dump(),
                      sample.at("completion").get<std::string>() + " (reward " + sample.at("reward").dump() + ")");
  for (size_t i = 0; i < prompts_.size() && !stop_here(); ++i) {
    GenerateOptions options;
    options.max_tokens = config_.sample_tokens;
    options.sampling.temperature = config_.sample_temperature;
    options.sampling.seed = config_.seed + static_cast<uint64_t>(progress_.step);
    options.eos = engine.end_tokens();
    const Generation made = generate(engine, prompts_[i], options);
    if (events_.sampled) events_.sampled(progress_.step, config_.sample_prompts[i], made.text);
  }
}

}  // namespace vitrine
