#pragma once
// From one row of logits to the next token: rules that change or cut scores, in a settable order, then a draw that depends
// on the seed and the token's place only.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "generate/repetitions.h"
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
/// number, OpenAI's frequency and presence penalties, and llama.cpp's DRY, top-n-sigma, XTC and Mirostat. With V = vocab_size,
/// s = scores [V], c(t) = how often t was generated:
///   bias         s(t) += bias(t)
///   repetition   for each t in prompt or generated, once: s(t) = s(t) < 0 ? s(t) * penalty : s(t) / penalty
///   frequency    s(t) -= penalty * c(t)
///   presence     s(t) -= penalty if c(t) > 0
///   dry          s(t) -= multiplier * base^(n - allowed_length) if t continues a repetition of n >= allowed_length tokens
///                (repetitions.h)
///   temperature  s(t) /= temperature
///   top_k        drops every t with s(t) below the k-th largest score (ties with it stay)
///   top_p        drops the unlikeliest tokens while their summed probability stays <= 1 - p (equal scores: lower id first)
///   min_p        drops every t with probability below min_p times that of the most likely
///   typical      keeps the tokens whose -log p is nearest to the entropy until their mass reaches p (ties stay)
///   top_n_sigma  drops every t with s(t) below the largest score minus n standard deviations of all finite scores
///   xtc          with its probability: drops the tokens whose probability reaches the threshold, but the least likely of them
///   mirostat     version 2: drops every t with surprise -log2 p above mu, which begins at 2 tau; then mu -= eta * (surprise of
///                the token that is taken - tau). Version 1: keeps the k most likely, with k from mu and the slope of the
///                probabilities (arXiv:2007.14966)
/// Every rule that cuts leaves at least one token. Nothing is sorted: a token costs a few passes over V.
///
/// One sampler serves one text on one thread: it keeps scratch memory and mu.
class Sampler {
 public:
  /// breakers: from breakers_of(), for DRY; null: none. Errors: UsageError from check_sampling_options.
  Sampler(SamplingOptions options, int64_t vocab_size, std::shared_ptr<const SequenceBreakers> breakers = {});

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
                            uint64_t stream = 0, std::span<const uint32_t> allowed = {});

  /// Tells Mirostat that this candidate of the last process() is taken. pick() does so itself.
  void accept(int32_t token);
  /// Goes on with the mu of another sampler of the same text.
  void follow(const Sampler& other) { mu_ = other.mu_; }

 private:
  void check(std::span<const float> logits) const;
  void take(std::span<const float> logits, std::span<const uint32_t> allowed);
  void apply(SamplingRule rule, std::span<const int32_t> prompt, std::span<const int32_t> generated, uint64_t stream);
  template <class To>
  void change(int32_t token, To to);
  void count(std::span<const int32_t> tokens);
  void apply_temperature();
  void cut_top_k();
  void cut_top_p();
  void cut_min_p();
  void cut_typical();
  void cut_top_n_sigma();
  void cut_xtc(uint64_t index, uint64_t stream);
  void cut_mirostat();
  double mirostat_count();
  void keep_most_likely(size_t k);
  void probabilities();
  void note_surprise(double probability);
  size_t draw(uint64_t index, uint64_t stream);
  template <class Keep>
  void keep_where(Keep keep);

  SamplingOptions options_;
  int64_t vocab_size_;
  std::shared_ptr<const SequenceBreakers> breakers_;
  double mu_;  // the surprise that Mirostat allows, in bits
  Candidates candidates_;
  std::vector<float> probability_, distance_;  // of the candidates, scratch of the rules that cut
  std::vector<uint32_t> members_;              // scratch of first_crossing
  std::vector<int32_t> counted_, seen_;        // occurrences by token, all zero between calls; which of them are not
};

}  // namespace vitrine
