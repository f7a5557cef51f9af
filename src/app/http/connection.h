#pragma once
// One connection: its requests one after the other, each with its limits and its answer. A coroutine, no thread. Inside
// src/app/http only.
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "http/access_log.h"
#include "http/admission.h"
#include "http/answer.h"
#include "http/request_reader.h"
#include "http/server.h"
#include "http/transport.h"
#include "http/workers.h"

namespace vitrine::http {

/// What the connections of a server share. It outlives them, and with it the io_context.
struct Shared {
  Shared(ServerOptions o, Handler h)
      : options(std::move(o)),
        handler(std::move(h)),
        admission(options),
        log(options.log),
        budget(std::make_shared<WorkBudget>(options.work_bytes)),
        workers(nullptr),
        workers_for_large(nullptr) {}
  ServerOptions options;
  Handler handler;
  Admission admission;
  AccessLog log;
  const std::shared_ptr<WorkBudget> budget;
  std::atomic<Workers*> workers, workers_for_large;
  boost::asio::io_context io;
  std::atomic<bool> draining = false;
  std::atomic<int64_t> running = 0, requests = 0, gone = 0, slow = 0;
};

// The coroutines await in statements of their own, never in a condition: g++ 12 lays out wrong frames for those.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// Takes `fd` over. `peer`: the other side's address; `group`: address_group() of it. `check_host`: see Admission.
  /// `quick_only`: for one request of ServerOptions::quick_paths, since all other places are taken.
  Connection(std::shared_ptr<Shared> shared, int fd, std::unique_ptr<Transport> transport, std::string peer, std::string group,
             bool check_host, bool quick_only = false);
  ~Connection();

  /// Runs until the connection ends, then calls `closed`.
  void start(std::function<void()> closed);
  // From any thread:
  void stop();    // ends at once
  void wake();    // looks at Shared::draining again
  void retire();  // ends if no request has begun
  /// Since when it waits for a request, in ticks of the steady clock; 0 while one is under way.
  int64_t idle_since() const { return idle_since_; }
  const std::string& group() const { return group_; }
  bool quick_only() const { return quick_only_; }

 private:
  using Clock = std::chrono::steady_clock;
  template <class T>
  using awaitable = boost::asio::awaitable<T>;
  enum class Got { bytes, late, nothing };
  enum class Next { handle, own, over };  // the handler's turn; the server's own answer in Turn::own; the client left
  struct Turn;                            // one request and its answer

  static awaitable<void> live(std::shared_ptr<Connection> self, std::function<void()> closed);
  awaitable<void> run();
  awaitable<bool> handshake();
  awaitable<void> refuse_plain();
  awaitable<bool> idle();
  awaitable<bool> serve_one();
  awaitable<Next> read_request(Turn& turn);
  awaitable<Next> read_body(Turn& turn);
  awaitable<void> send_answer(Turn& turn, Answer& answer);
  awaitable<void> send_own(Turn& turn);
  awaitable<bool> flush(Answer* answer);
  awaitable<void> linger();
  awaitable<Got> more(Clock::time_point deadline);
  awaitable<bool> wait(Clock::time_point deadline);
  Response error(const Turn& turn, const Problem& problem) const;
  Next refuse(Turn& turn, const Problem& problem) const;
  std::optional<Problem> hold(Turn& turn, size_t bytes) const;
  bool is_quick(const Request& request) const;
  void hand_over(Answer& answer) const;
  bool goes_on(const Turn& turn) const;
  void put_head(Turn& turn, Response& response, bool streams);
  void finish(Turn& turn, bool gone);
  void look_for_input();
  void arm(bool read);
  void poke();

  std::shared_ptr<Shared> shared_;
  boost::asio::strand<boost::asio::io_context::executor_type> strand_;
  boost::asio::posix::stream_descriptor socket_;
  std::unique_ptr<Transport> transport_;
  const std::string peer_, group_;
  const bool check_host_, quick_only_;
  boost::asio::steady_timer timer_;  // expires at the deadline of what is waited for, and is cancelled when something happens
  std::string in_, out_;
  bool poked_ = false, reading_ = false, writing_ = false;  // armed
  bool ended_ = false, failed_ = false, stopping_ = false, retiring_ = false;
  std::atomic<int64_t> idle_since_ = 0;
};

}  // namespace vitrine::http
