#pragma once
// Steps of plain gradient descent on one prompt, looked at from close: error, gradient, change.
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "train/learner.h"

namespace vitrine {

/// A prompt and what should follow it, as ids.
struct OneStepText {
  std::vector<int32_t> prompt, target;
};

struct OneStep {
  struct Target {
    int32_t token = 0;
    double logprob_before = 0, logprob_after = 0;  // given the tokens before it

    VITRINE_MEMBERS(token, logprob_before, logprob_after);
  };
  std::vector<Target> target;
  double rate = 0;
  double loss_before = 0, loss_after = 0;  // -log p(target), mean over the target's tokens
  double gradient_norm = 0;
  struct Part {
    std::string name;  // "W_E", "blocks.0", "ln_final.w"
    double gradient_norm = 0;
    double update_ratio = 0;  // |change| / |weights after it|

    VITRINE_MEMBERS(name, gradient_norm, update_ratio);
  };
  std::vector<Part> layers;                 // in the order of the run
  std::vector<TokenLogprob> before, after;  // most likely tokens after the prompt
  std::vector<double> losses;               // before the first step, and after each
  struct Followed {
    int32_t token = 0;
    std::vector<double> logprobs;  // after the prompt: before the first step, and after each

    VITRINE_MEMBERS(token, logprobs);
  };
  std::vector<Followed> followed;

  VITRINE_MEMBERS(target, rate, loss_before, loss_after, gradient_norm, layers, before, after, losses, followed);
};

/// Errors: as Engine::prompt_ids; UsageError for a target that becomes part of the prompt's last token.
OneStepText one_step_text(const Engine& engine, const std::string& prompt, const std::string& target);

/// The learner whose step is shown: plain gradient descent, without dropout. `opened` in Hugging Face's form (as_huggingface).
LearnerOptions one_step_options(int threads);
/// Bytes that its weights, in f32, and their gradients take.
size_t one_step_bytes(const Model& model);

/// As `vitrine train --one-step --json` prints it.
nlohmann::ordered_json to_json(const Engine& engine, const std::string& prompt, const OneStepText& text, const OneStep& step);

/// Norms for each block, and for each parameter outside the blocks, in the order of the run.
/// `report` is that of a step with its update.
std::vector<OneStep::Part> parts_of(const Parameters& parameters, const StepReport& report);

/// The largest number of steps that are looked at.
inline constexpr int64_t kMostSteps = 200;

/// w = w - lr · gradient of -log p(target | prompt), for all weights, so many times; 0: what the weights say as they are.
/// gradient_norm and layers are of the last step. The learner's optimizer must be SGD without momentum and decay: nothing but the
/// weights goes from step to step, so that two calls do what one call does with as many steps.
/// follow: tokens whose log-probabilities are noted; none: the target's first, and the most likely before the first step.
/// Errors: as Learner::step; UsageError for another optimizer.
OneStep take_steps(Learner& learner, std::span<const int32_t> prompt, std::span<const int32_t> target, double lr, int64_t steps,
                   int64_t top, std::span<const int32_t> follow = {});
/// A single one.
OneStep take_one_step(Learner& learner, std::span<const int32_t> prompt, std::span<const int32_t> target, double lr, int64_t top);

}  // namespace vitrine
