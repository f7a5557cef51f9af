#pragma once
// How well a model predicts texts: perplexity with its definition, where in the window and for which tokens.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evaluate/windows.h"
#include "io/shared_work.h"

namespace vitrine {

/// A text with the score of each of its tokens.
struct ScoredText {
  std::vector<TokenPiece> tokens;
  std::vector<float> logprobs;   // of each token; NaN: not scored
  std::vector<uint32_t> before;  // tokens in front of it in the window in which it was scored
  size_t bytes = 0;              // of the text, without those of tokens that are not scored
  /// The most likely tokens in the place of each, where they were asked for: a list for each token, or none at all.
  std::vector<std::vector<TokenLogprob>> likely;
};

/// Tokens that have something in common, such as their place in the window.
struct LossBucket {
  int64_t from = 0, to = 0;  // the range of places or of occurrences, both included
  int64_t tokens = 0;
  double nll = 0;  // mean of -ln p

  VITRINE_MEMBERS(from, to, tokens, nll);
};

struct PerplexityResult {
  WindowDefinition definition;
  std::vector<ScoredText> texts;
  int64_t windows = 0, tokens = 0, bytes = 0;         // tokens: that were scored; bytes: that they stand for
  double nll = 0, nll_error = 0;                      // mean of -ln p over them, and its standard error
  double perplexity = 0, perplexity_error = 0;        // e^nll, and the error that nll_error makes in it
  double bits_per_byte = 0;                           // of all -log2 p together, by bytes
  std::vector<LossBucket> by_position, by_frequency;  // tokens in front, in the window; occurrences in these texts
  EvaluationTime timings;

  VITRINE_MEMBERS(perplexity, perplexity_error, nll, nll_error, bits_per_byte, tokens, bytes, windows, by_position, by_frequency,
                  timings);
};

/// progress: called after each step with the share that is done and the rows per second.
using EvaluationProgress = std::function<void(double share, double rows_per_s)>;

/// The most likely tokens to keep in each token's place, of the first tokens.
struct LikelyOptions {
  int64_t top = 0;  // 0: none
  size_t tokens = 0;
};

/// shared: whose units are the steps of windows; without it all are computed here. Unless it gives all, the result has its texts
/// and counts, and no means. Errors: as define_windows, windows_over, score_sequences and SharedWork::unit; InputError if the
/// texts have nothing to score.
PerplexityResult perplexity(Engine& engine, std::span<const std::string> texts, const WindowOptions& options,
                            const EvaluationProgress& progress = {}, const LikelyOptions& likely = {},
                            SharedWork* shared = nullptr);

/// Of several models that predict together: the probability of each token is the mean of theirs. Without the most likely tokens.
/// members: what `perplexity` gave for each, at least one. Errors: InputError if the tokens that they scored are not the same.
PerplexityResult ensemble_of(std::span<const PerplexityResult> members);

/// Of two models on the same tokens: -ln p of b minus that of a.
struct LossDifference {
  double nll = 0, nll_error = 0;  // mean over the tokens; the standard error of paired differences
  double better = 0;              // share of tokens that are more likely by b

  VITRINE_MEMBERS(nll, nll_error, better);
};
/// Nothing if the tokens that were scored are not the same.
std::optional<LossDifference> difference_of(const PerplexityResult& a, const PerplexityResult& b);

/// What a reader sees as one unit: a token, or several where a character is spread over them.
struct LossSpan {
  size_t begin = 0, end = 0;  // bytes of the text, with what the tokenizer passed over in front
  size_t first = 0, tokens = 0;
  double nll = 0;  // of all of them; NaN: none is scored
};
std::vector<LossSpan> spans_of(const ScoredText& scored, std::string_view text);

}  // namespace vitrine
