#include "train/one_step.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "runtime/token_json.h"

namespace vitrine {
namespace {

std::vector<double> target_logprobs(Engine& engine, std::span<const int32_t> ids, size_t prompt) {
  const std::vector<float> all = engine.token_logprobs(ids);  // of ids[1..]
  return {all.begin() + static_cast<std::ptrdiff_t>(prompt - 1), all.end()};
}

}  // namespace

OneStepText one_step_text(const Engine& engine, const std::string& prompt, const std::string& target) {
  const auto ids_of = [&](const std::string& text) {
    std::vector<int32_t> ids = engine.prompt_ids(text);
    if (engine.tokenizer().adds_eos() && ids.back() == engine.tokenizer().eos()) ids.pop_back();  // the text goes on
    return ids;
  };
  OneStepText text;
  text.prompt = ids_of(prompt);
  const std::vector<int32_t> both = ids_of(prompt + target);
  if (both.size() <= text.prompt.size() || !std::equal(text.prompt.begin(), text.prompt.end(), both.begin()))
    throw UsageError("--target \"" + target +
                     "\" melts into the last word of the text, so there is nothing for the model to expect after it. Begin it "
                     "with a space.");
  text.target.assign(both.begin() + static_cast<std::ptrdiff_t>(text.prompt.size()), both.end());
  return text;
}

LearnerOptions one_step_options(int threads) {
  LearnerOptions options;
  options.optimizer = {.kind = OptimizerOptions::Kind::sgd, .weight_decay = 0};
  options.threads = threads;
  options.dropout = false;  // the gradient of the loss that is shown
  return options;
}

size_t one_step_bytes(const Model& model) {
  const OptimizerOptions optimizer = one_step_options(0).optimizer;
  return static_cast<size_t>(Optimizer::bytes(optimizer, static_cast<double>(parameter_count(model)), 1));
}

nlohmann::ordered_json to_json(const Engine& engine, const std::string& prompt, const OneStepText& text, const OneStep& step) {
  nlohmann::ordered_json json = {{"prompt", prompt}, {"tokens", text.prompt}};
  json.update(json_of(step, speller_of(engine)));
  return json;
}

std::vector<OneStep::Part> parts_of(const Parameters& parameters, const StepReport& report) {
  struct Squares {
    double change = 0, weight = 0;
  };
  std::vector<OneStep::Part> parts;
  std::vector<Squares> squares;
  const auto& list = parameters.list();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name = list[i].layer >= 0 ? "blocks." + std::to_string(list[i].layer) : list[i].ours;
    if (parts.empty() || parts.back().name != name) {  // a block's parameters are neighbors
      parts.push_back({name});
      squares.emplace_back();
    }
    parts.back().gradient_norm += report.gradient_norms[i] * report.gradient_norms[i];
    squares.back().change += report.update.change[i] * report.update.change[i];
    squares.back().weight += report.update.weight[i] * report.update.weight[i];
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].gradient_norm = std::sqrt(parts[i].gradient_norm);
    parts[i].update_ratio = squares[i].weight > 0 ? std::sqrt(squares[i].change / squares[i].weight) : 0;
  }
  return parts;
}

OneStep take_steps(Learner& learner, std::span<const int32_t> prompt, std::span<const int32_t> target, double lr, int64_t steps,
                   int64_t top, std::span<const int32_t> follow) {
  const OptimizerOptions& optimizer = learner.optimizer().options();
  if (optimizer.kind != OptimizerOptions::Kind::sgd || optimizer.momentum != 0 || optimizer.weight_decay != 0)
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
  result.rate = lr;
  result.before = engine.predict(prompt, top, false)[0].top;
  const int32_t answer = result.before[0].token;
  if (!follow.empty())
    for (const int32_t token : follow) result.followed.push_back({token, {}});
  else
    result.followed = {{target[0], {}}};
  if (follow.empty() && answer != target[0]) result.followed.push_back({answer, {}});

  const auto look = [&] {
    const std::vector<double> logprobs = target_logprobs(engine, ids, prompt.size());
    double loss = 0;
    for (const double one : logprobs) loss -= one;
    result.losses.push_back(loss / static_cast<double>(target.size()));
    std::vector<int32_t> other(prompt.begin(), prompt.end());
    for (OneStep::Followed& one : result.followed) {
      other.resize(prompt.size());
      other.push_back(one.token);
      one.logprobs.push_back(one.token == target[0] ? logprobs[0] : target_logprobs(engine, other, prompt.size())[0]);
    }
    return logprobs;
  };
  const std::vector<double> logprobs_before = look();
  std::vector<double> logprobs_after = logprobs_before;
  for (int64_t done = 1; done <= steps; ++done) {
    const StepReport report = learner.step(std::span(&batch, 1), lr, done == steps);
    logprobs_after = look();
    if (done < steps) continue;
    result.gradient_norm = report.gradient_norm;
    result.layers = parts_of(learner.parameters(), report);
  }
  result.after = steps == 0 ? result.before : engine.predict(prompt, top, false)[0].top;
  for (size_t i = 0; i < target.size(); ++i) result.target.push_back({target[i], logprobs_before[i], logprobs_after[i]});
  result.loss_before = result.losses.front();
  result.loss_after = result.losses.back();
  return result;
}

OneStep take_one_step(Learner& learner, std::span<const int32_t> prompt, std::span<const int32_t> target, double lr,
                      int64_t top) {
  return take_steps(learner, prompt, target, lr, 1, top);
}

}  // namespace vitrine
