#pragma once
// One stream of new tokens, apart from the model that is asked for them: its sampler, what ends it, and its text.
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "generate/constraint.h"
#include "generate/sampler.h"
#include "generate/sampling_options.h"
#include "generate/speculate.h"
#include "generate/stop.h"
#include "runtime/engine.h"

namespace vitrine {

struct GenerateOptions {
  int64_t max_tokens = 128;
  SamplingOptions sampling = {};
  std::vector<int32_t> eos = {};  // tokens that end the text; ignored if ignore_eos
  bool ignore_eos = false;
  int64_t min_tokens = 0;               // before these many new tokens no end token is taken, as min_new_tokens in Hugging Face
  std::vector<std::string> stops = {};  // strings that end the text, wherever token borders lie
  bool alone = false;  // the new text is one of its own, as an answer in a chat is; else it goes on where the prompt's ends
  std::shared_ptr<Drafter> drafter = {};  // proposes tokens; null: none are proposed. Changes no token
  // What the text must conform to; null: nothing. Cloned, so that one serves many texts. It acts before all rules of `sampling`,
  // and log-probabilities stay those of the unmodified logits. End tokens may come where the text may end and nowhere else; where
  // it must, it ends without one. A text that `stops`, max_tokens or the context cut short is the beginning of one that conforms.
  std::shared_ptr<const Constraint> constraint = {};
  // breakers_of() these options, so that texts share them; null: each finds them by itself.
  std::shared_ptr<const SequenceBreakers> breakers = {};
};

struct Timings {
  double load_ms = 0;  // set by the caller
  int64_t prompt_tokens = 0;
  double prompt_ms = 0;
  int64_t decode_tokens = 0;  // all but the first, which the prompt's logits give; by beams: steps
  double decode_ms = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;  // proposed by a drafter; those among them that were chosen
};

struct Generation {
  std::vector<int32_t> tokens;  // the new ones, with the end token that was taken, as Hugging Face returns them
  std::vector<float> logprobs;  // of each, under the unmodified logits
  std::string text;             // without the end token; empty if the model has no tokenizer
  std::string finish_reason;    // "stop": an end token or a stop string; "length": max_tokens or the context is full
  Timings timings;
};

/// Checks a prompt and end tokens against the vocabulary. Errors: as Engine::check_ids; UsageError for an end token outside.
void check_prompt(const Engine& engine, std::span<const int32_t> prompt, std::span<const int32_t> eos);

/// New tokens that fit behind a prompt of this length, at most `wanted`; the last one needs no position of its own.
int64_t room_for(const Engine& engine, size_t prompt, int64_t wanted);

/// A prompt and what was made of it. Whoever runs the model asks for pending() and hands the logits behind it to push(), so that
/// the tokens of several sequences can go through one step.
class TokenSequence {
 public:
  /// With tokens only (no tokenizer) stop strings and constraints are refused. stream: tells apart texts that share prompt and
  /// seed. Errors: as check_prompt; UsageError for options out of range.
  TokenSequence(const Engine& engine, std::vector<int32_t> prompt, GenerateOptions options, uint64_t stream = 0);

  bool done() const { return !made_.finish_reason.empty(); }
  /// The ids that the model has not seen: the prompt at first, then the token that was taken last.
  std::span<const int32_t> pending() const;
  /// The prompt and the new tokens.
  std::span<const int32_t> text() const { return text_; }
  std::span<const int32_t> prompt() const { return text().first(static_cast<size_t>(prompt_size_)); }
  const GenerateOptions& options() const { return options_; }
  /// New tokens that may still come, at most.
  int64_t room_left() const { return room_ - std::ssize(made_.tokens); }
  /// Positions that the prompt and all new tokens take in a cache, at most.
  int64_t positions() const { return prompt_size_ + std::max<int64_t>(room_, 1); }

  /// False: push() would wait for the constraint (Constraint::ready).
  bool ready(std::chrono::milliseconds patience) { return constraint_ == nullptr || constraint_->ready(patience); }
  /// Takes the next token from the logits [vocab_size] of the last pending id. Returns the text that became certain with it:
  /// never half a character, never part of a stop string. Not to be called when done. Errors: as Sampler::pick and
  /// Constraint::allowed; they are this sequence's alone, which is then of no more use.
  std::string push(std::span<const float> logits);

  /// The stop string that ended the text; null if none did.
  const std::string* stopped_by() const { return stop_.stopped_by(); }

  /// So far; finish_reason is "" until the end. The timings are the caller's to set.
  const Generation& made() const { return made_; }
  Timings& timings() { return made_.timings; }
  Generation take() && { return std::move(made_); }

 private:
  std::optional<Pick> pick(std::span<const float> logits);
  bool is_end(int32_t token) const;
  std::string spell(int32_t token);
  void finish(std::string& shown);

  const Engine& engine_;
  std::vector<int32_t> text_;
  int64_t prompt_size_;  // of text_
  GenerateOptions options_;
  uint64_t stream_;
  Sampler sampler_;
  std::optional<Sampler> early_;  // the same rules with end tokens forbidden; while there are fewer than min_tokens
  StopFilter stop_;
  std::optional<StreamDecoder> decoder_;
  std::unique_ptr<Constraint> constraint_;
  std::vector<uint32_t> allowed_;  // by it, and end tokens
  Utf8Buffer constrained_{true};   // the text under a constraint: the bytes of the tokens, which it saw
  int64_t room_;                   // new tokens at most
  Generation made_;
};

}  // namespace vitrine
