#pragma once
// A number that gradients are taken of: a sum of log-probabilities.
#include <span>

#include "ops/context.h"

namespace vitrine {

/// factor · log softmax(logits[row])[token]
struct LogprobTerm {
  int64_t row = 0;
  int32_t token = 0;
  double factor = 1;
};

/// The sum of the terms, which must lie within logits [rows, vocab_size]; one number [1]. Sums are in double.
/// Backward: logits.
Tensor sum_of_logprobs(Context& ctx, const Tensor& logits, std::span<const LogprobTerm> terms);

}  // namespace vitrine
