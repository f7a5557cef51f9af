#pragma once
// One request with its answer. Both classes are interfaces, so that routes can be tested without a socket.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "http/message.h"
#include "http/work_budget.h"

namespace vitrine::http {

/// An answer in pieces: server-sent events, or any body whose length is not known. Thread-safe; nothing blocks or throws.
class Stream {
 public:
  /// Ends the connection without the end of the body, unless close() was called: the client can tell that it lacks something.
  virtual ~Stream() = default;
  /// False if the client left, or reads so slowly that its queue (ServerOptions::stream_bytes) is full, which ends the stream.
  virtual bool send(std::string bytes) = 0;
  /// The body is complete. What was sent before still goes out.
  virtual void close() = 0;
};

/// Exactly one of respond() and stream() is called, once, from any thread. Thread-safe; nothing blocks.
class Exchange {
 public:
  /// Answers with 500 if nobody did.
  virtual ~Exchange() = default;
  virtual const Request& request() const = 0;
  /// Errors: std::logic_error if the request has its answer already.
  virtual void respond(Response response) = 0;
  /// The answer's status, type and headers; the body follows in pieces. Errors: as respond().
  virtual std::shared_ptr<Stream> stream(Response head) = 0;
  /// `gone` is called once if the client leaves before its answer is complete: from an I/O thread as soon as that is seen, or
  /// from here if it was seen already. A client that closes its sending side has left. `gone` must neither block nor throw.
  /// It is dropped when the answer has been sent. One at a time: a second call replaces the first.
  virtual void on_gone(std::function<void()> gone) = 0;
  /// Takes memory for this request's work from ServerOptions::work_bytes, and waits a moment if others have it. Errors:
  /// OverBudget.
  virtual WorkCharge charge(size_t bytes) = 0;
  /// For the log and for ServerOptions::answered: the model that answers, and tokens of prompts and of texts that were made,
  /// which add up.
  virtual void name_model(const std::string& name) = 0;
  virtual void count_tokens(int64_t prompt, int64_t made) = 0;
};

/// Runs on a request thread (ServerOptions::request_threads) and may take its time, or keep the exchange and return. An
/// exception answers with 500.
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

}  // namespace vitrine::http
