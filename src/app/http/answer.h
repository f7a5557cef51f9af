#pragma once
// What a handler says and what the connection still has to send: the two sides of an Exchange meet here.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "http/exchange.h"

namespace vitrine::http {

/// One request's answer. The handler's side (make_exchange) and the connection's side run in threads of their own.
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  /// `changed` tells the connection that there is something to take(). It must neither block nor throw, and is called without a
  /// lock.
  Answer(Request request, size_t stream_bytes, std::shared_ptr<WorkBudget> budget, std::function<void()> changed)
      : request_(std::move(request)), stream_bytes_(stream_bytes), budget_(std::move(budget)), changed_(std::move(changed)) {}

  /// The handler's side. When the last pointer to it goes without an answer, the answer is 500.
  std::shared_ptr<Exchange> make_exchange();

  const Request& request() const { return request_; }
  /// What Exchange::name_model and count_tokens told.
  struct Told {
    std::string model;                            // "": nothing
    int64_t prompt_tokens = -1, new_tokens = -1;  // -1: nothing
  };
  Told told() const;

  /// What is new since the last call.
  struct News {
    std::optional<Response> head;  // of an answer: all of it, or its status and headers if `streams`
    bool streams = false;
    std::string bytes;        // of the stream
    bool ended = false;       // nothing follows; false in an answer that is no stream
    bool unanswered = false;  // the handler let go of the exchange without an answer
    bool broken = false;      // the stream ended in the middle
    bool too_slow = false;    // ... because its queue was full
  };
  News take();
  /// The client has left: send() is false from now on, and on_gone is called.
  void leave();
  /// The answer was sent, or cannot be: lets go of on_gone.
  void finish();
  bool left() const;
  /// News::broken, without taking the news.
  bool broken() const;

 private:
  class Handle;
  class StreamHandle;
  void start(Response response, bool streams);
  bool send(std::string bytes);
  void end(bool broken);
  void abandon();
  void on_gone(std::function<void()> gone);

  const Request request_;
  const size_t stream_bytes_;
  const std::shared_ptr<WorkBudget> budget_;
  const std::function<void()> changed_;
  mutable std::mutex mutex_;
  std::optional<Response> head_;
  std::string bytes_;
  Told told_;
  std::function<void()> gone_;
  bool answered_ = false, streams_ = false, ended_ = false, abandoned_ = false, broken_ = false, too_slow_ = false;
  bool left_ = false, finished_ = false;
};

}  // namespace vitrine::http
