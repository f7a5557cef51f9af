#pragma once
// From one row of logits to the next token: rules that change or cut scores, in a settable order, then a draw that depends
// on the seed and the token's place only.
#include <cstdint>
#include <span>
#include <vector>

#include "generate/sampling_options.h"
#include "runtime/logits.h"

namespace vitrine {

/// The tokens still in play, by rising id, with their scores after the rules applied so far.
struct Candidates {
  std::vector<int32_t> token;
  std::vector<float> logit;
};

/// The probability of each of `tokens` in a draw from what is left; 0 for one that was cut.
std::vector<double> drawn_probabilities(const Candidates& left, std::span<const TokenLogprob> tokens);

struct Pick {
  int32_t token = 0;
  float logprob = 0;        // under the unmodified logits
  float logprob_after = 0;  // under the scores the choice was made from, after all rules
};

/// Applies the rules of Hugging Face's generate() (transformers' LogitsProcessor and LogitsWarper classes), number for
/// number, and OpenAI's frequency and presence penalties. With V = vocab_size, s = scores [V], c(t) = how often t was
/// generated:
///   bias         s(t) += bias(t)
///   repetition   for each t in prompt or generated, once: s(t) = s(t) < 0 ? s(t) * penalty : s(t) / penalty
///   frequency    s(t) -= penalty * c(t)
///   presence     s(t) -= penalty if c(t) > 0
///   temperature  s(t) /= temperature
///   top_k        drops every t with s(t) below the k-th largest score (ties with it stay)
///   top_p        drops the unlikeliest tokens while their summed probability stays <= 1 - p (equal scores: lower id first)
///   min_p        drops every t with probability below min_p times that of the most likely
///   typical      keeps the tokens whose -log p is nearest to the entropy until their mass reaches p (ties stay)
/// Every rule that cuts leaves at least one token. Nothing is sorted: a token costs a few passes over V.
///
/// One sampler serves one stream of requests on one thread: it keeps scratch memory.
class Sampler {
 public:
  /// Errors: UsageError from check_sampling_options.
  Sampler(SamplingOptions options, int64_t vocab_size);

  const SamplingOptions& options() const { return options_; }

  /// Chooses the token that follows prompt + generated.
  ///
  /// logits   [vocab_size], unmodified
  /// stream   tells apart completions that share prompt and seed
  /// allowed  a bit for each token (Constraint::allowed); the others are dropped before any rule acts. Empty: all are allowed
  /// returns  greedy: the largest score, the lowest id among equals; else drawn by inverting the cumulative probability, in
  ///          double over rising ids, at a number from Philox with key seed and counter (generated.size(), stream)
  /// Errors:  RunError for NaN or infinity in `logits`, naming the token, and where nothing is allowed; UsageError if bias or
  ///          penalties leave no finite score, naming the rule.
  Pick pick(std::span<const float> logits, std::span<const int32_t> prompt, std::span<const int32_t> generated,
            uint64_t stream = 0, std::span<const uint32_t> allowed = {});

  /// The scores the choice is made from: what is left after all rules that act (greedy: bias and penalties only).
  /// The reference is valid until the next call. Errors: as pick().
  const Candidates& process(std::span<const float> logits, std::span<const int32_t> prompt, std::span<const int32_t> generated,
                            std::span<const uint32_t> allowed = {});

 private:
  void check(std::span<const float> logits) const;
  void take(std::span<const float> logits, std::span<const uint32_t> allowed);
  void apply(SamplingRule rule, std::span<const int32_t> prompt, std::span<const int32_t> generated);
  void count(std::span<const int32_t> tokens);
  void apply_temperature();
  void cut_top_k();
  void cut_top_p();
  void cut_min_p();
  void cut_typical();
  void probabilities();
  size_t draw(uint64_t index, uint64_t stream);
  template <class Keep>
  void keep_where(Keep keep);

  SamplingOptions options_;
  int64_t vocab_size_;
  Candidates candidates_;
  std::vector<float> probability_, distance_;  // of the candidates, scratch of the rules that cut
  std::vector<uint32_t> members_;              // scratch of first_crossing
  std::vector<int32_t> counted_, seen_;        // occurrences by token, all zero between calls; which of them are not
};

}  // namespace vitrine
