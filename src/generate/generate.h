#pragma once
// The generation loop: prompt in, tokens out, one at a time or by beams.
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generate/beam.h"
#include "generate/engine.h"
#include "generate/sampler.h"
#include "generate/sampling_options.h"
#include "generate/stop.h"

namespace vitrine {

struct GenerateOptions {
  int64_t max_tokens = 128;
  SamplingOptions sampling = {};
  std::vector<int32_t> eos = {};  // tokens that end the text; ignored if ignore_eos
  bool ignore_eos = false;
  std::vector<std::string> stops = {};  // strings that end the text, wherever token borders lie
  bool alone = false;  // the new text is one of its own, as an answer in a chat is; else it goes on where the prompt's ends
};

class Stopwatch {
 public:
  /// Since the last lap, or since it was made.
  double lap_ms() {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

struct Timings {
  double load_ms = 0;  // set by the caller
  int64_t prompt_tokens = 0;
  double prompt_ms = 0;
  int64_t decode_tokens = 0;
  double decode_ms = 0;
};

struct Generation {
  std::vector<int32_t> tokens;  // the new ones, with the end token that was taken, as Hugging Face returns them
  std::vector<float> logprobs;  // of each, under the unmodified logits
  std::string text;             // without the end token; empty if the model has no tokenizer
  std::string finish_reason;    // "stop": an end token or a stop string; "length": max_tokens or the context is full
  Timings timings;
};

/// Generation a token at a time, for callers who wait for their reader. Between two calls the engine may run other things.
class TokenLoop {
 public:
  /// With tokens only (no tokenizer) stop strings are refused.
  /// Errors: as Engine::check_ids; UsageError for options out of range.
  TokenLoop(Engine& engine, std::vector<int32_t> prompt, GenerateOptions options);

  bool done() const { return !made_.finish_reason.empty(); }
  /// Runs the model once and takes the next token. Returns the text that became certain with it: never half a character, never
  /// part of a stop string. Not to be called when done, nor after an exception. Errors: RunError for NaN.
  std::string next();

  /// So far; finish_reason is "" until the end.
  const Generation& made() const { return made_; }
  Generation take() && { return std::move(made_); }

 private:
  Engine& engine_;
  std::vector<int32_t> prompt_;
  GenerateOptions options_;
  Sampler sampler_;
  StopFilter stop_;
  std::optional<StreamDecoder> decoder_;
  int64_t room_;  // new tokens at most
  std::unique_ptr<KvCache> cache_;
  CacheSequence sequence_;
  std::vector<float> row_;  // logits
  Generation made_;
  Stopwatch watch_;
};

/// Continues `prompt`; on_text, if given, receives the text as it becomes certain. Errors: as TokenLoop.
Generation generate(Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<void(std::string_view)>& on_text = {});

/// Continues `prompt` by beam search; hypotheses best first, fewer than asked for where there are no more. options.eos are the
/// caller's to set. Errors: as generate.
std::vector<Hypothesis> generate_beams(Engine& engine, std::span<const int32_t> prompt, const BeamOptions& options,
                                       Timings* timings = nullptr);

}  // namespace vitrine
