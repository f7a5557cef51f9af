#pragma once
// A model behind a real socket, and a client that knows no more HTTP than it needs.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "generate/generate.h"
#include "http/server.h"
#include "runtime/engine.h"
#include "serve/routes.h"
#include "serve/service.h"

namespace vitrine::serve {

struct Reply {
  int status = 0;
  std::string head, body;
  OrderedJson json() const { return OrderedJson::parse(body); }
  /// The value of a header, or "".
  std::string header(const std::string& name) const {
    const size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

/// One server-sent event.
struct Event {
  std::string name, data;
  OrderedJson json() const { return OrderedJson::parse(data); }
};

inline std::string unchunked(const std::string& body) {
  std::string whole;
  for (size_t at = 0;;) {
    const size_t size = std::stoul(body.substr(at), nullptr, 16);
    at = body.find("\r\n", at) + 2;
    if (size == 0) return whole;
    whole += body.substr(at, size);
    at += size + 2;
  }
}

/// A connection that is open until it is closed or destroyed.
class Connection {
 public:
  explicit Connection(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect");
  }
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void send(const std::string& method, const std::string& path, const std::string& body,
            const std::string& type = "application/json", const std::string& key = "") const {
    const std::string text = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                             (body.empty() ? "" : "Content-Type: " + type + "\r\n") +
                             (key.empty() ? "" : "Authorization: Bearer " + key + "\r\n") +
                             "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t n = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) throw std::runtime_error("cannot send");
      sent += static_cast<size_t>(n);
    }
  }
  /// What comes next, at least a byte; "" at the end.
  std::string some() const {
    char buffer[4096];
    const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
    return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : "";
  }
  Reply reply() const {
    std::string all;
    for (std::string more = some(); !more.empty(); more = some()) all += more;
    const size_t end = all.find("\r\n\r\n");
    if (end == std::string::npos) throw std::runtime_error("no answer: " + all);
    Reply reply{std::stoi(all.substr(9)), all.substr(0, end + 2), all.substr(end + 4)};
    if (reply.header("Transfer-Encoding") == "chunked") reply.body = unchunked(reply.body);
    return reply;
  }

 private:
  int socket_;
};

/// Writes roles and contents, tools in Hermes's form, and what else the tests ask for.
inline constexpr const char* kChatTemplate =
    "{{ bos_token }}{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools> as <tool_call>\n{% endif %}"
    "{% for m in messages %}{% if m.content == 'refuse me' %}{{ raise_exception('this template refuses that') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]"
    "{% endfor %}{{ '\\n' }}{% endfor %}{% if mood %}mood: {{ mood }}\n{% endif %}{% if add_generation_prompt %}<assistant>{% "
    "endif %}";

class Served {
 public:
  explicit Served(ServiceOptions options = {}, const std::string& model = std::string(VITRINE_SOURCE) + "/models/tales9m",
                  SchedulerOptions scheduling = {}, std::vector<http::ApiKey> keys = {}, size_t work_bytes = size_t{2} << 30)
      : engine(model, {.threads = 1, .numerics = {.exact = true}}),
        alone(model, {.threads = 1, .numerics = {.exact = true}}),
        service(std::make_unique<Service>(engine, scheduling, std::move(options))) {
    http::ServerOptions http;
    http.port = 0;
    http.request_threads = 4;
    http.keys = std::move(keys);
    http.work_bytes = work_bytes;
    http.open_paths = open_paths();
    http.quick_paths = quick_paths();
    http.error_body = http_error_body;
    http.answered = [this](const http::AccessEntry& entry) {
      if (service->options().requests != nullptr) service->options().requests->answered(entry);
      const std::lock_guard lock(mutex_);
      answered_.push_back(entry);
    };
    server = std::make_unique<http::Server>(std::move(http),
                                            [this](std::shared_ptr<http::Exchange> exchange) { answer(*service, exchange); });
  }
  ~Served() {
    server.reset();
    service.reset();
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  Reply ask(const std::string& method, const std::string& path, const std::string& body = "", const std::string& key = "") const {
    const Connection connection(server->port());
    connection.send(method, path, body, "application/json", key);
    return connection.reply();
  }
  Reply get(const std::string& path) const { return ask("GET", path); }
  Reply post(const std::string& path, const OrderedJson& json) const { return ask("POST", path, json.dump()); }
  /// Of an answer that must be 200.
  OrderedJson made(const std::string& path, const OrderedJson& json) const {
    const Reply reply = post(path, json);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }
  /// The events of a stream; comments are left out.
  std::vector<Event> events(const std::string& path, OrderedJson json) const {
    json["stream"] = true;
    const Reply reply = post(path, json);
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.header("Content-Type"), "text/event-stream; charset=utf-8");
    std::vector<Event> events;
    for (size_t at = 0; at < reply.body.size();) {
      const size_t end = reply.body.find("\n\n", at);
      if (end == std::string::npos) throw std::runtime_error("an event has no end: " + reply.body.substr(at));
      Event event;
      for (std::string_view rest(reply.body.data() + at, end - at); !rest.empty();) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        if (line.starts_with("event: ")) event.name = line.substr(7);
        if (line.starts_with("data: ")) event.data = line.substr(6);
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      }
      if (!event.data.empty()) events.push_back(std::move(event));
      at = end + 2;
    }
    return events;
  }

  /// What was told of the request with this number, once it has been answered.
  http::AccessEntry answered(size_t number) const {
    for (int i = 0; i < 3000; ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (number < answered_.size()) return answered_[number];
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    throw std::runtime_error("the request was not answered");
  }

  /// What the offline program makes of a prompt, greedily.
  Generation greedy(const std::vector<int32_t>& prompt, int64_t max_tokens, GenerateOptions options = {}) {
    options.max_tokens = max_tokens;
    if (options.eos.empty()) options.eos = alone.end_tokens();
    return generate(alone, prompt, options);
  }

  Engine engine;  // the service's
  Engine alone;   // the same model, for what the answers are compared with
  std::unique_ptr<Service> service;
  std::unique_ptr<http::Server> server;

 private:
  mutable std::mutex mutex_;
  std::vector<http::AccessEntry> answered_;
};

/// The error of an answer: its status, param and code, and words of its message.
inline void expect_error(const Reply& reply, int status, const std::string& param, const std::string& words) {
  EXPECT_EQ(reply.status, status) << reply.body;
  const OrderedJson error = reply.json()["error"];
  EXPECT_EQ(error["param"], param.empty() ? OrderedJson(nullptr) : OrderedJson(param)) << reply.body;
  EXPECT_NE(error["message"].get<std::string>().find(words), std::string::npos) << reply.body;
  EXPECT_EQ(error["status"], status);
}

}  // namespace vitrine::serve
