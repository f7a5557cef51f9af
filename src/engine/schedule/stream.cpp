#include "schedule/stream.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace vitrine {
namespace {

int64_t checked_top(int64_t top, const char* name) {
  if (top < 0) throw UsageError(std::string(name) + " is " + std::to_string(top) + "; expected 0 or more most likely tokens");
  return top;
}

ScaledAdapters checked_adapters(ScaledAdapters adapters) {
  for (const ScaledAdapter& a : adapters)
    if (!std::isfinite(a.scale))
      throw UsageError("an adapter's scale is " + std::to_string(a.scale) + "; expected a finite number");
  std::erase_if(adapters, [](const ScaledAdapter& a) { return a.scale == 0; });
  return adapters;
}

PrefixCache::Kind kind_of(const ScaledAdapters& adapters, std::string scope) {
  PrefixCache::Kind kind{{}, std::move(scope)};
  for (const ScaledAdapter& a : adapters) kind.adapters.emplace_back(a.adapter->id(), a.scale);
  return kind;
}

}  // namespace

Stream::Stream(const Engine& engine, Work work, std::shared_ptr<Sink> sink, uint64_t ticket)
    : ticket_(ticket),
      owner_(std::move(work.owner)),
      deadline_(work.deadline),
      sink_(std::move(sink)),
      top_(checked_top(work.top, "top")),
      prompt_top_(work.prompt_top),
      adapters_(checked_adapters(std::move(work.adapters))),
      kind_(kind_of(adapters_, std::move(work.prefix_scope))),
      make_listener_(std::move(work.listener)),
      sequence_(engine, std::move(work.prompt), std::move(work.options), work.stream) {
  if (prompt_top_) checked_top(*prompt_top_, "prompt_top");
  if (sequence_.options().drafter != nullptr) check_goes_back(engine);
  sequence_.timings().prompt_tokens = prompt_tokens();
}

int64_t Stream::left() const {
  const int64_t length = cached.length();
  if (!sequence_.done()) return std::ssize(sequence_.text()) - length;
  return scores() ? prompt_tokens() - 1 - length : 0;
}

std::optional<TokenEvent> Stream::push(std::span<const float> logits) {
  TokenEvent event;
  if (top_ > 0) event.top = top_logprobs(logits, static_cast<size_t>(top_));
  const size_t before = sequence_.made().tokens.size();
  event.text = sequence_.push(logits);
  if (sequence_.made().tokens.size() == before) {
    end_.text = std::move(event.text);
    return {};
  }
  event.token = sequence_.made().tokens.back();
  event.logprob = sequence_.made().logprobs.back();
  return event;
}

PromptToken Stream::score(int64_t position, std::span<const float> logits) const {
  PromptToken scored;
  scored.token = sequence_.prompt()[static_cast<size_t>(position) + 1];
  scored.logprob = static_cast<float>(static_cast<double>(logits[static_cast<size_t>(scored.token)]) - log_sum_exp(logits));
  if (*prompt_top_ > 0) scored.top = top_logprobs(logits, static_cast<size_t>(*prompt_top_));
  return scored;
}

void Stream::begin_again(CacheSequence empty) {
  cached = std::move(empty);
  keep_at.clear();
  waits_for = 0;
  scores_.clear();
  held_.clear();
  if (!listens()) return;
  try {
    listener_ = make_listener_();
  } catch (...) {
    fail(std::current_exception());
  }
}

template <class Call>
void Stream::to_sink(Call call) {
  if (ended_ || sink_ == nullptr) return;
  try {
    call(*sink_);
  } catch (...) {
    fail(std::current_exception());
  }
}

void Stream::tell_prompt() {
  const int64_t total = prompt_tokens();
  to_sink([&](Sink& sink) { sink.prompt({std::min(cached.length(), total), cached_tokens, total}); });
}

void Stream::tell_scores(std::vector<PromptToken>&& more) {
  if (scores_.empty()) scores_.push_back({sequence_.prompt()[0], {}, {}});
  scores_.insert(scores_.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  if (std::ssize(scores_) < prompt_tokens()) return;
  scored_ = true;
  to_sink([&](Sink& sink) { sink.scored(std::exchange(scores_, {})); });
}

void Stream::tell(TokenEvent&& event, Clock::time_point now) {
  Timings& timings = sequence_.timings();
  if (last_token == Clock::time_point())
    timings.prompt_ms = 1e3 * seconds_between(admitted, now);
  else
    timings.decode_ms += 1e3 * seconds_between(last_token, now), ++timings.decode_tokens;
  last_token = now;
  to_sink([&](Sink& sink) { sink.token(std::move(event)); });
}

void Stream::tell_ended() {
  if (!ended_) end_.end = sequence_.made().finish_reason == "stop" ? End::stop : End::length;
  ended_ = true;
  if (sequence_.stopped_by() != nullptr) end_.stop_string = *sequence_.stopped_by();
  end_.timings = sequence_.timings();
  end_.cached_tokens = cached_tokens;
  const std::shared_ptr<Sink> sink = std::exchange(sink_, nullptr);
  if (sink == nullptr) return;
  try {
    sink->ended(EndEvent(end_));
  } catch (...) {  // there is nobody left to tell
  }
}

void Stream::fail(std::exception_ptr error) {
  if (ended_) return;
  ended_ = true;
  end_.end = End::failed;
  try {
    std::rethrow_exception(std::move(error));
  } catch (const ConstraintError& e) {
    end_.error = e.what();
    end_.error_is_input = true;
    end_.error_code = e.code;
    end_.error_source = e.source;
  } catch (const DeadlineError& e) {
    end_.error = e.what();
    end_.error_code = "timeout";
  } catch (const InputError& e) {
    end_.error = e.what();
    end_.error_is_input = true;
  } catch (const std::exception& e) {
    end_.error = e.what();
  } catch (...) {
    end_.error = "an error of unknown kind";
  }
}

void Stream::cancel() {
  if (ended_) return;
  ended_ = true;
  end_.end = End::cancelled;
}

}  // namespace vitrine
