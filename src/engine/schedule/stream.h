#pragma once
// A stream that was submitted: its text, its place in the cache, and who hears of it.
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generate/token_sequence.h"
#include "ops/kv_cache.h"
#include "schedule/prefix_cache.h"
#include "schedule/stats.h"
#include "schedule/work.h"

namespace vitrine {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// The model has seen the first cached.length() tokens of its text. Whatever is left of it, prompt or new tokens, is read in
/// pieces, and behind the last of them comes the next token. So a stream that has lost its cache just reads on.
class Stream {
 public:
  /// Errors: as Scheduler::submit, but for the queue and the limit of positions.
  Stream(const Engine& engine, Work work, std::shared_ptr<Sink> sink, uint64_t ticket);

  uint64_t ticket() const { return ticket_; }
  const std::string& owner() const { return owner_; }
  Clock::time_point deadline() const { return deadline_; }
  /// Whether somebody sees or changes its hooks (Work::listener), and who.
  bool listens() const { return make_listener_ != nullptr; }
  Listener* listener() const { return listener_.get(); }
  /// Those with a scale above or below 0.
  const ScaledAdapters& adapters() const { return adapters_; }
  const PrefixCache::Kind& kind() const { return kind_; }
  TokenSequence& sequence() { return sequence_; }
  const TokenSequence& sequence() const { return sequence_; }
  int64_t prompt_tokens() const { return std::ssize(sequence_.prompt()); }

  /// Tokens of the text that are still to be read. Of one that asks for scores alone: all of the prompt but the last.
  int64_t left() const;
  bool over() const { return ended_ || (sequence_.done() && left() <= 0); }
  /// Whether the log-probabilities of the prompt's tokens are still to be told.
  bool scores() const { return prompt_top_.has_value() && !scored_; }
  /// The prompt is being read.
  bool reading() const { return sequence_.made().tokens.empty(); }

  /// The next token from a row of logits, with what is told of it; nothing where the text ends without one. Errors: as
  /// TokenSequence::push.
  std::optional<TokenEvent> push(std::span<const float> logits);
  /// Keeps a row of logits until sequence().ready(); push_held() then takes the next token from it.
  void hold(std::span<const float> logits) { held_.assign(logits.begin(), logits.end()); }
  bool holds() const { return !held_.empty(); }
  std::optional<TokenEvent> push_held() {
    const std::vector<float> logits = std::exchange(held_, {});
    return push(logits);
  }
  /// What a row of logits at `position` of the prompt says of the token behind it.
  PromptToken score(int64_t position, std::span<const float> logits) const;

  /// Reads its text from the start, with a new listener.
  void begin_again(CacheSequence empty);

  // To the reader. A sink that throws ends the stream.
  void tell_prompt();
  void tell_scores(std::vector<PromptToken>&& more);
  void tell(TokenEvent&& event, Clock::time_point now);
  void tell_ended();

  End end() const { return end_.end; }

  /// It ends, now, with what went wrong. The first call counts.
  void fail(std::exception_ptr error);
  void cancel();

  CacheSequence cached;
  std::vector<int64_t> keep_at;  // lengths at which a copy of it goes to the prefix cache, rising
  uint64_t waits_for = 0;        // the ticket of the stream that reads what this one begins with too; 0: none
  int64_t waits_until = 0;       // its length by then
  int64_t cached_tokens = 0;     // prompt tokens that were found in the prefix cache
  Clock::time_point submitted = Clock::now(), admitted = {}, last_token = {};

 private:
  template <class Call>
  void to_sink(Call call);

  uint64_t ticket_;
  std::string owner_;
  Clock::time_point deadline_;
  std::shared_ptr<Sink> sink_;
  int64_t top_;
  std::optional<int64_t> prompt_top_;
  ScaledAdapters adapters_;
  PrefixCache::Kind kind_;
  std::function<std::shared_ptr<Listener>()> make_listener_;
  std::shared_ptr<Listener> listener_;
  TokenSequence sequence_;
  std::vector<PromptToken> scores_;
  std::vector<float> held_;  // logits; empty: none
  bool scored_ = false, ended_ = false;
  EndEvent end_;
};

}  // namespace vitrine
