#pragma once
// How far a model's predictions are from another's: the losses of distillation, beside cross_entropy.
#include <cstdint>
#include <span>
#include <vector>

#include "ops/context.h"
#include "ops/head.h"

namespace vitrine {

/// With p the target's distribution and q the learner's:
///   forward_kl      KL(p || q) = sum of p log(p / q)
///   reverse_kl      KL(q || p)
///   jensen_shannon  beta KL(p || m) + (1 - beta) KL(q || m),  m = beta p + (1 - beta) q
struct DivergenceSpec {
  enum class Kind : uint8_t { forward_kl, reverse_kl, jensen_shannon };
  Kind kind = Kind::forward_kl;
  double beta = 0.5;       // of jensen_shannon, between 0 and 1
  double temperature = 1;  // p and q are softmax(capped logits / temperature)
};

/// For each of some rows, the most likely tokens of a distribution and the rest of it in one number.
struct TopTokens {
  int64_t k = 0;
  std::vector<int32_t> tokens;  // [rows, k], most likely first
  std::vector<float> logprobs;  // [rows, k + 1]: theirs, and the last: of all other tokens together (-inf: there are none)
};

/// Mean divergence over the scored rows. Both heads are walked in chunks of the vocabulary, so [T, vocab_size] never exists;
/// where the vocabulary is one chunk, its logits are computed once, else twice.
///
/// x, head    the learner's residual stream [T, d_model] and head
/// target_x,  the same of the model to come near to: [T, its own d_model]. A constant: no gradient reaches it. It must live
/// target     until backward has run
/// labels     [T]: rows with kNotScored do not count; other values say nothing here
/// returns    one number [1], in nats and not multiplied by temperature²; 0 if nothing is scored
///
/// Backward: x, W, bias of the learner; each chunk's logits are computed again.
/// Errors: ShapeError naming the two sizes that disagree.
/// Sources: arXiv:1503.02531 section 2 (temperature), 2306.13649 section 3 (the divergences).
Tensor divergence(Context& ctx, const Tensor& x, const Head& head, const Tensor& target_x, const Head& target,
                  std::span<const int32_t> labels, const DivergenceSpec& spec);

/// The same against stored tokens. All tokens that are not among a row's k are one event, for the target and for the learner:
/// a divergence over k + 1 events, which is at most the whole one, 0 where the two agree, and the whole one when k is the
/// vocabulary. (Scaling the k up to a sum of 1 instead would teach that nothing else can come.)
///
/// target   of T rows, at the temperature of `spec`. Copied
/// Errors: ShapeError as above; InputError for a token outside the vocabulary.
Tensor divergence(Context& ctx, const Tensor& x, const Head& head, const TopTokens& target, std::span<const int32_t> labels,
                  const DivergenceSpec& spec);

/// The k most likely tokens of every row under softmax(capped logits / temperature), lower ids first among equals.
/// k is at most vocab_size. Not recorded on a tape.
TopTokens top_tokens(Context& ctx, const Tensor& x, const Head& head, int64_t k, double temperature);

}  // namespace vitrine
