#pragma once
// From the residual stream to scores over the vocabulary: logits for running, the loss for training, from one Head.
#include <span>

#include "ops/context.h"
#include "ops/weight.h"

namespace vitrine {

/// How a family reads predictions off its final residual stream. Tied models give their embedding.
struct Head {
  const Weight* weight = nullptr;  // [vocab_size, d_model], with its bias if the family has one
  double softcap = 0;
  double scale = 1;  // of the stream it reads, and so of the logits before the bias (Granite divides them by logits_scaling)
};

/// Errors: InputError for a matrix that the model's files do not hold (Weight::absent). For those who read a head directly;
/// logits() and the losses ask by themselves.
void require_present(const Weight& head);

/// softcap(scale · x[rows] Wᵀ + bias) for the rows that are read only.
///
/// x        [T, d_model], what residual() returned
/// rows     which of them, in the order of the result
/// returns  [rows, vocab_size]
///
/// Hook point: hook_logits [T of the listener's sequence, vocab_size]; listening makes the full table of its sequence.
/// Backward: x, W, bias. NaN and infinite logits are returned as they are.
Tensor logits(Context& ctx, const Tensor& x, const Head& head, std::span<const int64_t> rows);

/// Mean cross-entropy of the scored rows: -log softmax(logits)[label], in chunks of rows and of the vocabulary: of
/// [T, vocab_size] one chunk exists at a time, and on a tape what its budget for saved values holds.
///
/// labels   [T]: the token row t should predict, or kNotScored
/// returns  one number [1]; 0 if nothing is scored
///
/// Backward: x, W, bias; logits beyond that budget are computed again. Errors: InputError for a label outside the
/// vocabulary.
Tensor cross_entropy(Context& ctx, const Tensor& x, const Head& head, std::span<const int32_t> labels);

/// The log-probability of each row's label, log softmax(logits / temperature)[label], in the same chunks.
///
/// entropies  if given, becomes [T]: those of softmax(logits / temperature), a constant
/// returns    [T]; 0 where nothing is scored
///
/// Backward and errors: as cross_entropy.
Tensor label_logprobs(Context& ctx, const Tensor& x, const Head& head, std::span<const int32_t> labels, double temperature = 1,
                      Tensor* entropies = nullptr);

inline constexpr int32_t kNotScored = -100;
/// Labels that are not kNotScored.
int64_t scored_in(std::span<const int32_t> labels);

/// The first row of `t` that holds a NaN or an infinity, or -1.
int64_t first_not_finite(const Tensor& t);

}  // namespace vitrine
