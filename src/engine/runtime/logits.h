#pragma once
// What one row of logits means: log-probabilities, the most likely tokens, the distance of two rows.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/members.h"

namespace vitrine {

/// log(sum of exp) of a row, in double.
double log_sum_exp(std::span<const float> logits);

/// KL(p || q) in nats of the distributions that two rows of logits mean, in double. Not below 0; NaN if a row holds one.
double kl_divergence(std::span<const float> p, std::span<const float> q);

/// Turns logits into log-probabilities in place: x - max - log(sum of exp(x - max)).
void log_softmax(std::span<float> row);

struct TokenLogprob {
  int32_t token;
  float logprob;

  double prob() const { return std::exp(static_cast<double>(logprob)); }
  VITRINE_MEMBERS(token, logprob, prob());
};

/// A token alone, which JSON gives with its piece.
struct NamedToken {
  int32_t token = 0;

  VITRINE_MEMBERS(token);
};

/// The n most likely tokens of a row under its softmax, most likely first, lower ids first among equals.
/// Errors: RunError for NaN or infinity.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, size_t n);

/// Errors: RunError naming NaN or infinity and the first token that has it.
void check_logits(std::span<const float> logits);

}  // namespace vitrine
