#pragma once
// What is asked of a scheduler, and what is told of it while it runs.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "generate/token_sequence.h"
#include "model/adapter.h"
#include "ops/context.h"
#include "runtime/logits.h"

namespace vitrine {

/// A stream was not complete by its Work::deadline.
struct DeadlineError : RunError {
  using RunError::RunError;
};

/// One stream of tokens that somebody asked for.
struct Work {
  std::vector<int32_t> prompt = {};
  GenerateOptions options = {};  // a drafter serves this stream alone; several choices of one prompt are several Works
  uint64_t stream = 0;           // tells apart choices that share prompt and seed (Sampler::pick)
  int64_t top = 0;               // most likely tokens told with each new token, under the unmodified logits
  std::optional<int64_t> prompt_top =
      {};  // set: also the log-probability of each prompt token, with so many most likely in its place
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();  // it fails then (DeadlineError)
  std::string owner = {};  // whose it is (a key's name or an address): the queue is fair among owners
  // Streams share the keys and values of what they begin with alike only with those of the same scope: what was cached shows in
  // the time that a prompt takes and in cached_tokens.
  std::string prefix_scope = {};
  // What the model is run with, one after the other, besides what the engine has for all (Engine::adapt); the stream keeps them
  // alive. Streams of other adapters share its steps, but no prefix.
  ScaledAdapters adapters = {};
  // Makes who sees and may change the stream's hooks; null: nobody does. It is called in the scheduler's thread when the stream
  // begins, and again each time it begins again because it had to give its cache back: then all is shown from the start. Such a
  // stream has steps of its own, which take turns with those of the others, and shares no prefix with any of them.
  std::function<std::shared_ptr<Listener>()> listener = {};
};

struct TokenEvent {
  int32_t token = 0;
  float logprob = 0;              // under the unmodified logits
  std::string text;               // that became certain with this token: never half a character or part of a stop string
  std::vector<TokenLogprob> top;  // Work::top of them, most likely first
};

/// How far the prompt is read: told before its first step, and after each. A stream that had to give its cache back (Scheduler)
/// reads its new tokens again, untold.
struct PromptEvent {
  int64_t done = 0, cached = 0, total = 0;  // prompt tokens read so far, those among them found in the prefix cache, all of them
};

struct PromptToken {
  int32_t token = 0;
  std::optional<float> logprob;   // given the tokens before it, under the unmodified logits; of the first token: none
  std::vector<TokenLogprob> top;  // Work::prompt_top of them at this token's place; at the first: none
};

enum class End : uint8_t { stop, length, cancelled, failed };

struct EndEvent {
  End end = End::stop;
  std::optional<std::string> stop_string;  // that ended the text; an end token did if there is none
  std::string text;                        // that became certain without another token; "" but where a constraint ends the text
  std::string error;                       // failed: what happened, for the reader
  bool error_is_input = false;             // failed: the request was wrong (InputError); else the run was
  std::string error_code, error_source;    // failed by its constraint: ConstraintError's; by its deadline: "timeout"
  Timings timings;
  int64_t cached_tokens = 0;  // prompt tokens that were found in the prefix cache
};

/// Who hears of a stream. Calls come from the scheduler's thread, one at a time, ended() last and exactly once; they may begin
/// before submit() has returned. They must not block; an exception ends the stream as failed.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void prompt(const PromptEvent&) {}
  /// Once, before the first token, with Work::prompt_top.
  virtual void scored(std::vector<PromptToken>&&) {}
  virtual void token(TokenEvent&&) = 0;
  virtual void ended(EndEvent&&) = 0;
};

}  // namespace vitrine
