#pragma once
// Beam search as Hugging Face's generate(num_beams=...) defines it (transformers 5, generation/utils.py, _beam_search), as
// bookkeeping over a callback: the caller runs the model and forks its caches.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace vitrine {

enum class EarlyStopping : uint8_t {
  no,     // stop when the best running beam cannot beat the worst finished one at the present length (a heuristic)
  yes,    // stop as soon as n_beams hypotheses are finished
  never,  // as `no`, but a positive length penalty is credited with the greatest length still possible
};

struct BeamOptions {
  int n_beams = 4;
  int n_return = 1;  // hypotheses to return, at most n_beams
  int64_t max_new_tokens = 16;
  double length_penalty = 1;  // score = sum of log-probabilities / (generated tokens, end token included)^length_penalty
  EarlyStopping early_stopping = EarlyStopping::no;
  std::vector<int32_t> eos = {};  // a beam that takes one of these is finished; may be empty
};

/// One running beam of the next step: beam `parent` of the step before, extended by `token`.
struct BeamChoice {
  int parent;
  int32_t token;
  bool operator==(const BeamChoice&) const = default;
};

/// A finished continuation; `tokens` ends with the end token if it took one.
struct Hypothesis {
  std::vector<int32_t> tokens;
  float score;
};

/// Its tokens without the end token, which belongs to its score and not to its text.
std::span<const int32_t> without_end(const Hypothesis& hypothesis, std::span<const int32_t> eos);

/// The log-probabilities of the next token, after whatever rules the caller applies to them.
///
/// choices  the beams in their new order, to be forked from the beams of the call before; empty at the first call
/// returns  [choices.size(), vocab_size], at the first call [1, vocab_size] for the prompt; valid until the next call
using BeamScores = std::function<std::span<const float>(std::span<const BeamChoice> choices)>;

/// Searches and returns n_return hypotheses, best first. All sums are f32, as in the reference. Among equal scores the one
/// from the earlier beam, then the lower token, comes first (the reference leaves this open).
///
/// Errors: UsageError for impossible options, or a vocabulary below (1 + number of end tokens) (at least 2) tokens;
///         RunError for NaN in the scores; ShapeError for scores of another size than promised.
std::vector<Hypothesis> beam_search(const BeamOptions& options, const BeamScores& scores);

}  // namespace vitrine
