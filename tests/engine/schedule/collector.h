#pragma once
// A reader of a stream that remembers what it heard, and a scheduler's owner that waits for it.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "schedule/scheduler.h"

namespace vitrine {

class Collector final : public Sink {
 public:
  /// on_token: called with each, in the scheduler's thread.
  explicit Collector(std::function<void(const TokenEvent&)> on_token = {}) : on_token_(std::move(on_token)) {}

  void prompt(const PromptEvent& event) override {
    const std::lock_guard lock(mutex_);
    prompts.push_back(event);
  }
  void scored(std::vector<PromptToken>&& told) override {
    const std::lock_guard lock(mutex_);
    ++times_scored;
    scores = std::move(told);
  }
  void token(TokenEvent&& event) override {
    {
      const std::lock_guard lock(mutex_);
      if (times_ended > 0) ++after_end;
      tokens.push_back(event.token);
      logprobs.push_back(event.logprob);
      text += event.text;
      tops.push_back(event.top);
    }
    changed_.notify_all();
    if (on_token_) on_token_(event);
  }
  void ended(EndEvent&& event) override {
    {
      const std::lock_guard lock(mutex_);
      ++times_ended;
      end = std::move(event);
    }
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return times_ended > 0; });
  }
  void wait_for_tokens(size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return times_ended > 0 || tokens.size() >= n; });
  }

  std::vector<PromptEvent> prompts;
  std::vector<PromptToken> scores;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> tops;
  std::string text;
  EndEvent end;
  int times_scored = 0, times_ended = 0, after_end = 0;

 private:
  std::function<void(const TokenEvent&)> on_token_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// A job that holds the scheduler up until it is let go: what is submitted meanwhile begins together.
class Gate {
 public:
  explicit Gate(Scheduler& scheduler)
      : done_(scheduler.run([opened = opened_.get_future().share()](Engine&) { opened.wait(); }, "gate")) {}
  ~Gate() { open(); }
  void open() {
    if (!done_.valid()) return;
    opened_.set_value();
    done_.get();
  }

 private:
  std::promise<void> opened_;
  std::future<void> done_;
};

}  // namespace vitrine
