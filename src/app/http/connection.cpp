#include "http/connection.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <optional>
#include <utility>

#include "base/memory.h"
#include "http/response_text.h"

namespace vitrine::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kAhead = 64 << 10;  // bytes read of the next requests while one is being answered
constexpr std::chrono::hours kLong{24 * 365};
constexpr std::chrono::seconds kLinger{2};
constexpr std::chrono::milliseconds kQuick{2000};  // for the headers on a connection of the reserve

constexpr size_t kLarge = 64 << 10;  // a body that takes long to read and to answer

constexpr const char* kNoPlace = "this server has all the connections that it takes";

// What was read goes from here to where it belongs, so that an idle connection has no buffer.
std::array<char, 64 << 10>& scratch() {
  thread_local std::array<char, 64 << 10> bytes;
  return bytes;
}

Problem late(const std::string& what, std::chrono::milliseconds allowed) {
  return {408, "request_timeout", "the " + what + " did not arrive within " + std::to_string(allowed.count()) + " ms"};
}

// After a handler threw.
void fail(const Shared& shared, Exchange& exchange, const std::string& why) {
  try {
    exchange.respond(
        {500, "application/json", shared.options.error_body(exchange.request().path, 500, "internal_error", why), {}});
  } catch (const std::exception&) {  // it has its answer
  }
}

void call_handler(const Shared& shared, std::shared_ptr<Exchange> exchange) {
  try {
    shared.handler(exchange);
  } catch (const std::exception& e) {
    fail(shared, *exchange, e.what());
  } catch (...) {
    fail(shared, *exchange, "unknown error");
  }
}

// Whatever ends a turn, its handler hears of it.
struct LeaveAtEnd {
  Answer& answer;
  ~LeaveAtEnd() { answer.leave(); }
};

}  // namespace

struct Connection::Turn {
  explicit Turn(Shared& s)
      : shared(s),
        reader(std::in_place, ReadLimits{s.options.header_bytes, s.options.target_bytes, s.options.body_bytes}),
        held(s.budget) {}
  ~Turn() {
    if (runs) --shared.running;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  Shared& shared;
  std::optional<RequestReader> reader;  // until the request is read
  const Clock::time_point began = Clock::now();
  Request request;
  Fields headers;  // of the answer, besides the route's
  std::string id, method, owner;
  TraceContext trace;
  Answer::Told told;
  WorkCharge held;    // for its body and its answer
  bool runs = false;  // counted in Shared::running
  int status = 0;
  uint64_t bytes = 0;
  std::optional<Response> own;  // the server's own answer
  bool keep_alive = false, http_1_0 = false, chunked = false, without_body = false;
};

Connection::Connection(std::shared_ptr<Shared> shared, int fd, std::unique_ptr<Transport> transport, std::string peer,
                       std::string group, bool check_host, bool quick_only)
    : shared_(std::move(shared)),
      strand_(asio::make_strand(shared_->io)),
      socket_(strand_, fd),
      transport_(std::move(transport)),
      peer_(std::move(peer)),
      group_(std::move(group)),
      check_host_(check_host),
      quick_only_(quick_only),
      timer_(strand_) {}

Connection::~Connection() = default;

// A function with parameters rather than a lambda with captures: those live in the coroutine.
Connection::awaitable<void> Connection::live(std::shared_ptr<Connection> self, std::function<void()> closed) {
  try {
    co_await self->run();
  } catch (const std::exception&) {  // out of memory: this connection ends, the others go on
  }
  if (!self->failed_) self->transport_->shut();
  self->transport_.reset();
  error_code ignored;
  self->socket_.close(ignored);
  closed();
}

void Connection::start(std::function<void()> closed) {
  // Not here: it might begin at once, under the locks of the caller.
  asio::post(strand_, [self = shared_from_this(), closed = std::move(closed)]() mutable {
    asio::co_spawn(self->strand_, live(self, std::move(closed)), asio::detached);
  });
}

void Connection::stop() {
  asio::post(strand_, [self = weak_from_this()] {
    if (const auto connection = self.lock()) {
      connection->stopping_ = true;
      connection->poke();
    }
  });
}

void Connection::wake() {
  asio::post(strand_, [self = weak_from_this()] {
    if (const auto connection = self.lock()) connection->poke();
  });
}

void Connection::retire() {
  asio::post(strand_, [self = weak_from_this()] {
    if (const auto connection = self.lock()) {
      connection->retiring_ = connection->idle_since_ != 0;
      connection->poke();
    }
  });
}

void Connection::poke() {
  poked_ = true;
  timer_.cancel();
}

// Until something happened; false once the deadline has passed or the server ends.
Connection::awaitable<bool> Connection::wait(Clock::time_point deadline) {
  if (!poked_) {
    error_code ignored;
    timer_.expires_at(deadline);
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  co_return std::exchange(poked_, false) && !stopping_;
}

void Connection::arm(bool read) {
  bool& armed = read ? reading_ : writing_;
  if (armed) return;
  armed = true;
  socket_.async_wait(read ? asio::posix::stream_descriptor::wait_read : asio::posix::stream_descriptor::wait_write,
                     [self = shared_from_this(), &armed](error_code) {
                       armed = false;
                       self->poke();
                     });
}

// Reads what is there into in_, as long as there is room.
void Connection::look_for_input() {
  while (!reading_ && !ended_ && !failed_ && in_.size() < kAhead) {
    auto& bytes = scratch();
    const auto [did, n] = transport_->read(bytes.data(), bytes.size());
    switch (did) {
      case Transport::Did::some: in_.append(bytes.data(), n); break;
      case Transport::Did::wants_read: return arm(true);
      case Transport::Did::wants_write: return arm(false);
      case Transport::Did::ended: ended_ = true; break;
      case Transport::Did::plain:
      case Transport::Did::failed: failed_ = true; break;
    }
  }
}

Connection::awaitable<Connection::Got> Connection::more(Clock::time_point deadline) {
  const size_t before = in_.size();
  for (;;) {
    if (stopping_ || failed_) co_return Got::nothing;
    if (before < kAhead) {
      look_for_input();
    } else if (!reading_) {  // headers may be allowed to be longer
      auto& bytes = scratch();
      const auto [did, n] = transport_->read(bytes.data(), bytes.size());
      if (did == Transport::Did::some) in_.append(bytes.data(), n);
      if (did == Transport::Did::wants_read) arm(true);
      if (did == Transport::Did::wants_write) arm(false);
      ended_ = ended_ || did == Transport::Did::ended;
      failed_ = failed_ || did == Transport::Did::failed;
    }
    if (in_.size() > before) co_return Got::bytes;
    if (ended_ || failed_) co_return Got::nothing;
    if (Clock::now() >= deadline) co_return Got::late;
    co_await wait(deadline);
  }
}

// All of out_. False if the client does not take it, or `answer` was broken off meanwhile; it hears of a client that leaves.
Connection::awaitable<bool> Connection::flush(Answer* answer) {
  size_t done = 0;
  auto deadline = Clock::now() + shared_->options.write_timeout;
  while (done < out_.size()) {
    const auto [did, n] = transport_->write(out_.data() + done, out_.size() - done);
    if (did == Transport::Did::some) {
      done += n;
      if (n > 0) deadline = Clock::now() + shared_->options.write_timeout;
      continue;
    }
    if (did == Transport::Did::wants_write)
      arm(false);
    else if (did == Transport::Did::wants_read)
      arm(true);
    else
      failed_ = true;
    if (answer != nullptr && !failed_) look_for_input();
    if (answer != nullptr && (failed_ || ended_)) answer->leave();
    if (failed_ || stopping_) co_return false;
    if (answer != nullptr && answer->broken()) co_return false;
    if (Clock::now() >= deadline) {
      ++shared_->slow;
      failed_ = true;
      co_return false;
    }
    co_await wait(deadline);
  }
  out_.clear();
  if (out_.capacity() > (16 << 10)) out_ = {};
  co_return true;
}

// The client may still be sending what nobody will read. Closed at once, the connection would be reset, and the answer lost with
// it.
Connection::awaitable<void> Connection::linger() {
  if (failed_ || stopping_) co_return;
  transport_->shut();
  const auto deadline = Clock::now() + kLinger;
  for (;;) {
    in_.clear();
    const Got got = co_await more(deadline);
    if (got != Got::bytes) co_return;
  }
}

Connection::awaitable<bool> Connection::handshake() {
  const auto deadline = Clock::now() + shared_->options.header_timeout;
  for (;;) {
    const auto did = transport_->handshake().did;
    if (did == Transport::Did::some) co_return true;
    if (did == Transport::Did::wants_read)
      arm(true);
    else if (did == Transport::Did::wants_write)
      arm(false);
    else if (did != Transport::Did::plain)
      co_return false;
    else
      break;
    co_await wait(deadline);
    if (stopping_ || Clock::now() >= deadline) co_return false;
  }
  co_await refuse_plain();
  co_return false;
}

// In the client's own words: it does not speak TLS.
Connection::awaitable<void> Connection::refuse_plain() {
  transport_ = plain_transport(socket_.native_handle());
  Turn turn(*shared_);
  turn.id = request_id(nullptr);
  turn.owner = peer_;
  refuse(turn, {400, "https_expected", "this port uses HTTPS, and the request is plain HTTP; use https://"});
  co_await send_own(turn);
}

Connection::awaitable<void> Connection::run() {
  bool open = co_await handshake();
  while (open) {
    open = co_await idle();
    if (!open) break;
    open = co_await serve_one();
  }
}

// Until a request begins.
Connection::awaitable<bool> Connection::idle() {
  if (!in_.empty()) co_return true;
  in_ = {};
  out_ = {};
  const auto now = Clock::now(), deadline = now + (quick_only_ ? kQuick : shared_->options.idle_timeout);
  idle_since_ = now.time_since_epoch().count();
  for (;;) {
    look_for_input();
    if (!in_.empty() || ended_ || failed_ || stopping_ || retiring_ || shared_->draining || Clock::now() >= deadline) break;
    co_await wait(deadline);
  }
  idle_since_ = 0;
  co_return !in_.empty() && !failed_ && !stopping_;
}

Response Connection::error(const Turn& turn, const Problem& problem) const {
  Response response;
  response.status = problem.status;
  response.body = shared_->options.error_body(turn.request.path, problem.status, problem.code, problem.message);
  if (problem.status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

Connection::awaitable<bool> Connection::serve_one() {
  const ServerOptions& o = shared_->options;
  Turn turn(*shared_);
  const Next next = co_await read_request(turn);
  if (next == Next::over) co_return false;
  if (next == Next::own) {
    co_await send_own(turn);
    co_return goes_on(turn);
  }
  auto answer = std::make_shared<Answer>(std::move(turn.request), o.stream_bytes, shared_->budget, [self = weak_from_this()] {
    if (const auto connection = self.lock()) connection->wake();
  });
  turn.reader.reset();
  const LeaveAtEnd leave_at_end{*answer};
  turn.runs = true;
  ++shared_->running;
  hand_over(*answer);
  co_await send_answer(turn, *answer);
  answer->finish();
  co_return goes_on(turn);
}

// To the handler, on a thread where it may take as long as it does.
void Connection::hand_over(Answer& answer) const {
  if (is_quick(answer.request()))
    call_handler(*shared_, answer.make_exchange());
  else if (Workers* const workers = answer.request().body.size() < kLarge ? shared_->workers : shared_->workers_for_large)
    workers->run([shared = shared_, exchange = answer.make_exchange()]() mutable { call_handler(*shared, std::move(exchange)); });
}

bool Connection::is_quick(const Request& request) const {
  const std::vector<std::string>& quick = shared_->options.quick_paths;
  return std::find(quick.begin(), quick.end(), request.path) != quick.end();
}

bool Connection::goes_on(const Turn& turn) const {
  return turn.keep_alive && !quick_only_ && !shared_->draining && !ended_ && !failed_ && !stopping_;
}

Connection::Next Connection::refuse(Turn& turn, const Problem& problem) const {
  turn.own = error(turn, problem);
  return Next::own;
}

// Reads and checks the headers, then the body.
Connection::awaitable<Connection::Next> Connection::read_request(Turn& turn) {
  RequestReader& reader = *turn.reader;
  const ServerOptions& o = shared_->options;
  turn.id = request_id(nullptr);
  turn.owner = peer_;
  const auto allowed = quick_only_ ? std::min(kQuick, o.header_timeout) : o.header_timeout;
  const auto deadline = turn.began + allowed;
  for (;;) {
    in_.erase(0, reader.take_head(in_));
    if (reader.has_head() || reader.problem()) break;
    const Got got = co_await more(deadline);
    if (got == Got::nothing) co_return Next::over;
    if (got == Got::late) co_return refuse(turn, late("headers", allowed));
  }
  if (reader.problem()) co_return refuse(turn, *reader.problem());
  turn.request = reader.head();
  Request& request = turn.request;
  turn.method = reader.is_head() ? "HEAD" : request.method;
  turn.without_body = reader.is_head();
  turn.http_1_0 = reader.is_http_1_0();
  turn.id = request.id = request_id(request.header("x-request-id"));
  std::optional<TraceContext> client_trace = read_traceparent(request);
  if (o.spans)
    turn.trace = with_own_span(std::move(client_trace));
  else if (client_trace)
    turn.trace = *std::move(client_trace);
  Admission::Verdict verdict = shared_->admission.check(request, reader.host(), check_host_);
  turn.headers = std::move(verdict.headers);
  if (!verdict.owner.empty()) turn.owner = verdict.owner;
  request.owner = turn.owner;
  request.admin = verdict.admin;
  if (verdict.refused) co_return refuse(turn, *verdict.refused);
  if (quick_only_ && !is_quick(request)) co_return refuse(turn, {503, "too_many_connections", kNoPlace});
  const Next next = co_await read_body(turn);
  if (next != Next::handle) co_return next;
  request.body = reader.take_body_text();
  turn.keep_alive = reader.keep_alive();
  if (!verdict.answered) co_return Next::handle;
  turn.own = std::move(verdict.answered);
  co_return Next::own;
}

Connection::awaitable<Connection::Next> Connection::read_body(Turn& turn) {
  RequestReader& reader = *turn.reader;
  const ServerOptions& o = shared_->options;
  const auto deadline = Clock::now() + o.body_timeout;
  std::optional<Problem> no_room;
  if (reader.expects_continue() && !reader.is_http_1_0() && !reader.done() && in_.empty()) {
    out_ = "HTTP/1.1 100 Continue\r\n\r\n";
    const bool sent = co_await flush(nullptr);
    if (!sent) co_return Next::over;
  }
  while (!no_room && !reader.done()) {
    in_.erase(0, reader.take_body(in_));
    if (reader.problem()) co_return refuse(turn, *reader.problem());
    no_room = hold(turn, reader.body_size());
    if (reader.done() || no_room) break;
    const Got got = co_await more(deadline);
    if (got == Got::nothing) co_return Next::over;
    if (got == Got::late) co_return refuse(turn, late("body", o.body_timeout));
  }
  if (!no_room) co_return Next::handle;
  reader.take_body_text();  // given back now, not when the client has heard of it
  turn.held.clear();
  co_return refuse(turn, *no_room);
}

// Counts what has come of a body: a length that is only said takes no memory, and must keep nobody out.
std::optional<Problem> Connection::hold(Turn& turn, size_t bytes) const {
  try {
    if (bytes > turn.held.bytes()) turn.held.add(bytes - turn.held.bytes());
  } catch (const OverBudget& e) {
    return Problem{e.never_fits ? 413 : 503, e.never_fits ? "request_too_large" : "busy", e.what()};
  }
  return {};
}

// Puts the head of an answer into out_, and its body unless it follows.
void Connection::put_head(Turn& turn, Response& response, bool streams) {
  Framing framing;
  framing.http_1_0 = turn.http_1_0;
  framing.chunked = streams && !framing.http_1_0;
  if (streams && framing.http_1_0) turn.keep_alive = false;  // the body ends with the connection
  if (shared_->draining) turn.keep_alive = false;
  framing.keep_alive = turn.keep_alive;
  const bool bodiless = response.status == 204 || response.status == 304;
  if (!streams && !bodiless) framing.length = response.body.size();
  if (streams) response.headers.emplace_back("X-Accel-Buffering", "no");  // nginx would hold the pieces back
  response.headers.insert(response.headers.end(), turn.headers.begin(), turn.headers.end());
  turn.status = response.status;
  turn.chunked = framing.chunked;
  out_ += head_text(response, framing, turn.id);
  if (streams || bodiless || turn.without_body) return;
  out_ += response.body;
  turn.bytes += response.body.size();
}

// An answer of the server's own. The connection ends behind it unless the whole request was read.
Connection::awaitable<void> Connection::send_own(Turn& turn) {
  turn.keep_alive = !turn.reader->problem() && turn.reader->done() && turn.reader->keep_alive();
  put_head(turn, *turn.own, false);
  const bool sent = co_await flush(nullptr);
  finish(turn, !sent);
  if (sent && !turn.keep_alive) co_await linger();
}

void Connection::finish(Turn& turn, bool gone) {
  ++shared_->requests;
  if (gone) ++shared_->gone;
  const Clock::duration took = Clock::now() - turn.began;
  AccessEntry entry{turn.id, turn.method, turn.request.path, turn.owner};
  entry.status = turn.status;
  entry.bytes = turn.bytes;
  entry.ms = std::chrono::duration<double, std::milli>(took).count();
  entry.gone = gone;
  entry.model = turn.told.model;
  entry.prompt_tokens = turn.told.prompt_tokens;
  entry.new_tokens = turn.told.new_tokens;
  entry.began = std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(took);
  entry.trace = turn.trace;
  shared_->log.write(entry);
  if (shared_->options.answered) shared_->options.answered(entry);
}

Connection::awaitable<void> Connection::send_answer(Turn& turn, Answer& answer) {
  bool complete = false, told = false;
  auto deadline = Clock::now() + kLong, ping_at = deadline;
  std::string ping;
  turn.request.path = answer.request().path;  // for the log
  for (;;) {
    look_for_input();
    if ((ended_ || failed_ || stopping_) && !std::exchange(told, true)) {
      answer.leave();
      deadline = Clock::now() + shared_->options.write_timeout;  // the handler may answer all the same: one side is open
    }
    if (failed_ || stopping_) break;
    Answer::News news = answer.take();
    if (news.unanswered) {
      if (told) break;
      news.head = error(turn, {500, "internal_error", "the request was left without an answer"});
    }
    if (news.bytes.empty() && !news.ended && Clock::now() >= ping_at) news.bytes = ping;
    if (news.head && !news.streams && news.head->type != "application/octet-stream" &&  // files have limits of their own
        news.head->body.size() > shared_->options.answer_bytes)
      news.head =
          error(turn, {400, "answer_too_large",
                       "the answer has " + bytes_text(static_cast<double>(news.head->body.size())) +
                           ", and answers have at most " + bytes_text(static_cast<double>(shared_->options.answer_bytes)) +
                           " (--max-answer); ask for less in one request"});
    if (news.head) {
      turn.held.count(news.head->body.size());
      if (news.streams) ping = std::move(news.head->ping);
      put_head(turn, *news.head, news.streams);
      complete = !news.streams;
    }
    if (news.streams && !turn.without_body) {
      turn.bytes += news.bytes.size();
      if (turn.chunked)
        append_chunk(out_, news.bytes);
      else
        out_ += news.bytes;
    }
    if (news.too_slow) ++shared_->slow;
    if (news.broken) {
      failed_ = true;
      answer.leave();
      break;
    }
    if (news.streams && (news.ended || turn.without_body)) {
      complete = true;
      if (turn.chunked && !turn.without_body) out_ += kLastChunk;
    }
    if (!out_.empty() && !ping.empty()) ping_at = Clock::now() + shared_->options.ping_interval;
    const bool sent = co_await flush(&answer);
    if (!sent && !failed_ && !stopping_) continue;  // broken off: take() says why
    if (!sent || complete) {
      complete = complete && sent;
      break;
    }
    co_await wait(std::min(deadline, ping_at));
    if (Clock::now() >= deadline) break;
  }
  out_.clear();
  if (!complete) {
    failed_ = true;
    answer.leave();
    if (turn.status == 0) turn.status = 499;  // the client has closed the request
  }
  turn.told = answer.told();
  finish(turn, !complete || failed_ || answer.left());
}

}  // namespace vitrine::http
