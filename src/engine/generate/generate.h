#pragma once
// The generation loop: prompt in, tokens out, one at a time or by beams.
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/stopwatch.h"
#include "generate/beam.h"
#include "generate/token_sequence.h"
#include "runtime/engine.h"

namespace vitrine {

/// Generation a token at a time, for callers who wait for their reader. Between two calls the engine may run other things.
class TokenLoop {
 public:
  /// Errors: as TokenSequence; with a drafter as check_goes_back.
  TokenLoop(Engine& engine, std::vector<int32_t> prompt, GenerateOptions options);

  bool done() const { return sequence_.done(); }
  /// Runs the model once and takes the next token, and with a drafter those behind it that were proposed rightly; the text as
  /// TokenSequence::push(). Not to be called when done, nor after an exception. Errors: RunError for NaN.
  std::string next();

  /// So far; finish_reason is "" until the end.
  const Generation& made() const { return sequence_.made(); }
  Generation take() && { return std::move(sequence_).take(); }

 private:
  // The logits behind the whole text, run again: of a model without a mask, whose every position changes as the text grows.
  Tensor run_all();
  // The logits of the last token and of the drafts behind it, as one step, which is not committed.
  Tensor run(Step& step, std::span<const int32_t> drafts);

  Engine& engine_;
  std::shared_ptr<Drafter> drafter_;
  TokenSequence sequence_;
  std::unique_ptr<KvCache> cache_;  // null: nothing can be kept
  CacheSequence cached_;
  Stopwatch watch_;
};

/// Continues `prompt`; on_text, if given, receives the text as it becomes certain. Errors: as TokenLoop.
Generation generate(Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<void(std::string_view)>& on_text = {});

/// Shown every step of a beam search: the beams, and the log-probabilities after them, both as BeamScores has them.
using BeamListener = std::function<void(std::span<const BeamChoice> choices, std::span<const float> logprobs)>;

/// Continues `prompt` by beam search; hypotheses best first, fewer than asked for where there are no more. options.eos are the
/// caller's to set. Errors: as generate.
std::vector<Hypothesis> generate_beams(Engine& engine, std::span<const int32_t> prompt, const BeamOptions& options,
                                       Timings* timings = nullptr, const BeamListener& listener = {});

}  // namespace vitrine
