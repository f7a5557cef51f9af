#pragma once
// Multiple choice by log-likelihood, item by item as lm-evaluation-harness computes it.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "evaluate/choice_tasks.h"
#include "evaluate/windows.h"
#include "io/shared_work.h"
#include "runtime/engine.h"

namespace vitrine {

struct ChoiceScore {
  double logprob = 0;   // of the continuation, all its tokens together
  int64_t tokens = 0;   // of the continuation
  bool greedy = false;  // greedy decoding would have written it

  VITRINE_MEMBERS(logprob, tokens, greedy);
};

/// An answer: the choice with the largest log-likelihood, the first of equals.
struct ChoiceAnswer {
  std::vector<ChoiceScore> scores;
  size_t pick = 0;        // by log-likelihood
  size_t pick_norm = 0;   // divided by the choice's characters
  size_t pick_bytes = 0;  // divided by its bytes
};

/// A share of items, with the standard error of a mean.
struct Accuracy {
  double value = 0, error = 0;
};

struct ChoicesResult {
  std::vector<ChoiceAnswer> answers;  // of each item
  Accuracy accuracy, norm, bytes;
  double random = 0;    // the accuracy of guessing
  double centered = 0;  // (accuracy - random) / (1 - random): 0 for guessing, 1 for all right
  int64_t tokens = 0;   // of all choices with their contexts
  EvaluationTime timings;
};

/// progress: called with the share that is done and the rows per second.
/// Where the choices of an item begin alike, that part is run once, and its keys and values are shared.
/// shared: whose units are the batches of items; without it all are computed here. Unless it gives all, the result is of no use.
/// Errors: InputError naming the item for a continuation without a token or longer than the context; RunError naming the first
/// NaN or infinity.
ChoicesResult answer_choices(Engine& engine, std::span<const ChoiceItem> items,
                             const std::function<void(double share, double rows_per_s)>& progress = {},
                             SharedWork* shared = nullptr);

/// DCLM's "core" of several tasks: the mean of their centered accuracies (arXiv:2406.11794).
double centered_mean(std::span<const ChoicesResult> results);

}  // namespace vitrine
