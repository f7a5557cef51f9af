#pragma once
// A server on a free port whose paths do what tests need.
#include <dirent.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "http/server.h"

namespace vitrine::http {

/// Waits until `holds`, at most ten seconds.
inline bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return holds();
}

inline int open_files() {
  int n = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (folder != nullptr && ::readdir(folder) != nullptr) ++n;
  if (folder != nullptr) ::closedir(folder);
  return n - 3;  // ".", "..", the folder itself
}

/// What the handler below remembers.
struct Seen {
  std::mutex mutex;
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Exchange>> held;   // of /hold
  std::vector<std::shared_ptr<Stream>> streams;  // of /stream
  std::atomic<int> gone = 0;
  Request last() {
    const std::lock_guard lock(mutex);
    return requests.empty() ? Request() : requests.back();
  }
  size_t count() {
    const std::lock_guard lock(mutex);
    return requests.size();
  }
  std::shared_ptr<Exchange> take_held() {
    const std::lock_guard lock(mutex);
    if (held.empty()) return nullptr;
    auto one = held.back();
    held.pop_back();
    return one;
  }
  std::shared_ptr<Stream> take_stream() {
    const std::lock_guard lock(mutex);
    if (streams.empty()) return nullptr;
    auto one = streams.back();
    streams.pop_back();
    return one;
  }
};

/// /echo gives the body back, /hold keeps the exchange, /stream starts a stream and keeps it, with the ping in ?ping=, /throw
/// throws, /drop answers nothing, /big answers a megabyte for each in ?mb=, everything else "hello".
inline void handle(Seen& seen, const std::shared_ptr<Exchange>& exchange) {
  const Request& request = exchange->request();
  exchange->on_gone([&seen] { ++seen.gone; });
  {
    const std::lock_guard lock(seen.mutex);
    seen.requests.push_back(request);
    if (request.path == "/hold") {
      seen.held.push_back(exchange);
      return;
    }
    if (request.path == "/stream") {
      const std::string* ping = request.parameter("ping");
      seen.streams.push_back(exchange->stream({200, "text/event-stream", "", {}, ping == nullptr ? "" : *ping}));
      return;
    }
  }
  if (request.path == "/throw") throw std::runtime_error("it went wrong");
  if (request.path == "/drop") return;
  if (request.path == "/echo") return exchange->respond({200, "text/plain", request.body, {}});
  if (request.path == "/big") {
    const std::string* mb = request.parameter("mb");
    return exchange->respond(
        {200, "text/plain", std::string(static_cast<size_t>(std::stoi(mb == nullptr ? "1" : *mb)) << 20, 'x'), {}});
  }
  exchange->respond({200, "text/plain", "hello", {}});
}

inline ServerOptions test_options() {
  ServerOptions o;
  o.port = 0;
  return o;
}

/// Members go in the right order: what the handler writes to outlives the server.
struct TestServer {
  explicit TestServer(ServerOptions o = test_options())
      : server(std::make_unique<Server>(std::move(o), [this](const std::shared_ptr<Exchange>& e) { handle(seen, e); })) {}
  ~TestServer() {
    server.reset();
    seen.held.clear();
    seen.streams.clear();
  }
  uint16_t port() const { return server->port(); }
  Seen seen;
  std::unique_ptr<Server> server;
};

}  // namespace vitrine::http
