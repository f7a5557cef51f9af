#include "train/one_step.h"

#include <cmath>

#include "base/error.h"

namespace vitrine {
namespace {

std::vector<double> target_logprobs(Engine& engine, std::span<const int32_t> ids, size_t prompt) {
  const std::vector<float> all = engine.token_logprobs(ids);  // of ids[1..]
  return {all.begin() + static_cast<std::ptrdiff_t>(prompt - 1), all.end()};
}

double mean_loss(const std::vector<double>& logprobs) {
  double sum = 0;
  for (const double p : logprobs) sum -= p;
  return sum / static_cast<double>(logprobs.size());
}

}  // namespace

std::vector<OneStep::Part> parts_of(const Parameters& parameters, const StepReport& report) {
  struct Squares {
    double change = 0, weight = 0;
  };
  std::vector<OneStep::Part> parts;
  std::vector<Squares> squares;
  const auto& list = parameters.list();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name = list[i].layer >= 0 ? "blocks." + std::to_string(list[i].layer) : list[i].ours;
    if (parts.empty() || parts.back().name != name) {  // a block's parameters are neighbours
      parts.push_back({name});
      squares.emplace_back();
    }
    parts.back().gradient += report.gradient_norms[i] * report.gradient_norms[i];
    squares.back().change += report.update.change[i] * report.update.change[i];
    squares.back().weight += report.update.weight[i] * report.update.weight[i];
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].gradient = std::sqrt(parts[i].gradient);
    parts[i].update_ratio = squares[i].weight > 0 ? std::sqrt(squares[i].change / squares[i].weight) : 0;
  }
  return parts;
}

OneStep take_one_step(Learner& learner, std::span<const int32_t> prompt, std::span<const int32_t> target, double lr,
                      int64_t top) {
  const OptimiserOptions& optimiser = learner.optimiser().options();
  if (optimiser.kind != OptimiserOptions::Kind::sgd || optimiser.momentum != 0 || optimiser.weight_decay != 0)
    throw UsageError("one step is shown for plain gradient descent: sgd without momentum and weight decay");
  if (prompt.empty() || target.empty()) throw UsageError("one step needs a prompt and what should follow it");
  Engine& engine = learner.engine();
  std::vector<int32_t> ids(prompt.begin(), prompt.end());
  ids.insert(ids.end(), target.begin(), target.end());
  engine.check_ids(ids);

  // The prompt's own tokens are not scored; the last row of the prompt predicts the target's first token.
  Batch batch;
  batch.tokens.assign(ids.begin(), ids.end() - 1);
  batch.labels.assign(batch.tokens.size(), kNotScored);
  std::copy(target.begin(), target.end(), batch.labels.begin() + static_cast<std::ptrdiff_t>(prompt.size() - 1));
  batch.lengths = {static_cast<int64_t>(batch.tokens.size())};

  OneStep result;
  result.before = engine.predict(prompt, top, false)[0].top;
  result.target_logprob_before = target_logprobs(engine, ids, prompt.size());
  const StepReport report = learner.step(std::span(&batch, 1), lr, true);
  result.after = engine.predict(prompt, top, false)[0].top;
  result.target_logprob_after = target_logprobs(engine, ids, prompt.size());
  result.loss_before = mean_loss(result.target_logprob_before);
  result.loss_after = mean_loss(result.target_logprob_after);
  result.gradient_norm = report.gradient_norm;
  result.parts = parts_of(learner.parameters(), report);
  return result;
}

}  // namespace vitrine
