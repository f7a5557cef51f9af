#pragma once
// One request's streams and what is made of them: an endpoint derives from Answer and forms its JSON.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/exchange.h"
#include "schedule/scheduler.h"
#include "serve/api_error.h"
#include "serve/sampling_fields.h"
#include "serve/service.h"

namespace vitrine::serve {

/// A token of a choice, with the text that became certain with it.
struct Token {
  int32_t id = 0;
  float logprob = 0;
  std::string text;
  std::vector<TokenLogprob> top;
};

/// One text that is generated.
struct Choice {
  size_t index = 0;   // among all of the request
  size_t prompt = 0;  // which of its prompts it continues
  std::vector<int32_t> prompt_ids;
  std::vector<PromptToken> scored;  // with Work::prompt_top
  std::vector<Token> tokens;
  std::string text;
  std::string tail;  // its end, which came with the end and not with a token
  EndEvent end;
  bool ended = false;

  bool by_end_token() const { return end.end == End::stop && !end.stop_string; }
  const char* finish_reason() const { return end.end == End::stop ? "stop" : "length"; }
};

/// What a request's work cost.
struct Usage {
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  int64_t reasoning_tokens = 0;  // among the last; set where reasoning is told apart
};

/// All that follows start() happens on the thread of answers, one thing at a time: what a stream sends as it grows, or the whole
/// answer at the end. A client that leaves cancels all streams; a stream that fails ends the others.
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  /// `streamed`: in pieces of stream_type().
  Answer(Service& service, std::shared_ptr<http::Exchange> exchange, bool streamed, ErrorForm form = ErrorForm::openai);
  virtual ~Answer() = default;
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  /// A stream of the request; `prompt` counts its prompts. The owner of its prefixes is set here.
  void add(Work work, size_t prompt = 0);
  /// One whose tokens are sampled: what of `sampled` is not its options is set here.
  void add(Work work, size_t prompt, const Sampled& sampled);
  /// Submits what was added. Errors: as Scheduler::submit; then nothing runs and nothing was answered.
  void start();

 protected:
  Service& service() { return service_; }
  bool streamed() const { return streamed_; }
  std::vector<Choice>& choices() { return choices_; }
  Usage usage() const;

  /// The whole answer, when all choices have ended.
  virtual OrderedJson whole() = 0;
  /// The same as text.
  virtual std::string whole_text() { return json_text(whole()); }
  // Of streams: a part of a prompt was read; a prompt was scored; a token came, with choice.tokens.back(); a choice ended; all
  // have; something failed.
  virtual void on_prompt(Choice&, const PromptEvent&) {}
  virtual void on_scored(Choice&) {}
  virtual void on_token(Choice&) {}
  virtual void on_end(Choice&) {}
  virtual void on_done() {}
  virtual void on_error(const ApiError& error);
  /// The Content-Type of a stream.
  virtual const char* stream_type() const { return "text/event-stream; charset=utf-8"; }
  /// The comment or event that keeps a connection alive while nothing else comes; "": none.
  virtual std::string ping() const { return ": ping\n\n"; }

  /// Sends "data: {…}\n\n".
  void send(const OrderedJson& json);
  void send_event(std::string_view event, const OrderedJson& json) { send_event_text(event, json_text(json)); }
  void send_event_text(std::string_view event, const std::string& json);
  void send_text(std::string text);

 private:
  class Ear;
  void post(std::function<void()> task);
  void hear(std::function<void()> task);
  void cancel();
  void open();
  void take_prompt(Choice& choice, const PromptEvent& event);
  void take_scored(Choice& choice, std::vector<PromptToken>&& tokens);
  void take_token(Choice& choice, TokenEvent&& event);
  void take_end(Choice& choice, EndEvent&& event);
  void hold(const std::vector<TokenLogprob>& most_likely);
  void add(Work work, size_t prompt, bool include_stop, std::optional<int64_t> slot);
  void remember(const Choice& choice);
  void fail(const ApiError& error);
  ApiError cancelled() const;

  Service& service_;
  std::weak_ptr<Scheduler> scheduler_;
  std::shared_ptr<http::Exchange> exchange_;
  const bool streamed_;
  const ErrorForm form_;

  std::vector<Choice> choices_;
  std::vector<Work> works_;
  struct Sent {  // of each choice
    bool include_stop;
    std::optional<int64_t> slot;  // none: the text cannot be saved
    SlotText text;                // without tokens
  };
  std::vector<Sent> sent_;
  // Of the thread of answers.
  std::shared_ptr<http::Stream> stream_;
  size_t running_ = 0;
  size_t most_likely_ = 0;  // that a whole answer holds
  bool answered_ = false;   // or failed: what still comes is not told
  // Of all threads.
  std::mutex mutex_;
  std::vector<std::function<void()>> held_;  // until start() has submitted everything
  bool started_ = false;
  bool gone_ = false;
  std::vector<Scheduler::Ticket> tickets_;
};

}  // namespace vitrine::serve
