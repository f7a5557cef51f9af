#pragma once
// A client that says exactly what a test wants on a socket of its own, and waits for nothing longer than ten seconds.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace vitrine::http {

struct Reply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;
};

class Client {
 public:
  static constexpr int kPatienceMs = 10'000;

  explicit Client(uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) fail("connect");
  }
  explicit Client(const std::string& unix_path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un to = {};
    to.sun_family = AF_UNIX;
    unix_path.copy(to.sun_path, sizeof to.sun_path - 1);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) fail("connect");
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) fail("send");
      text.remove_prefix(static_cast<size_t>(n));
    }
  }
  /// Whether the server took it.
  bool try_send(std::string_view text) {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  /// The same, for as long at most.
  bool send_for(std::string_view text, timeval patience) {
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return try_send(text);
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  /// The connection is reset rather than closed.
  void reset() {
    const linger now = {1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  /// Reads until `text` has come; what was read up to and with it. Throws if the connection ends before.
  std::string read_until(std::string_view text) {
    for (;;) {
      const size_t at = in_.find(text);
      if (at != std::string::npos) {
        std::string out = in_.substr(0, at + text.size());
        in_.erase(0, at + text.size());
        return out;
      }
      if (!read_some())
        throw std::runtime_error("the connection ended before \"" + std::string(text) + "\" came; got \"" + in_ + "\"");
    }
  }
  std::string read_bytes(size_t n) {
    while (in_.size() < n)
      if (!read_some()) throw std::runtime_error("the connection ended early");
    std::string out = in_.substr(0, n);
    in_.erase(0, n);
    return out;
  }
  /// All until the server closes.
  std::string read_all() {
    while (read_some()) {
    }
    return std::exchange(in_, {});
  }
  /// Whether the server closed the connection, with nothing before.
  bool ended() { return in_.empty() && !read_some(); }
  /// Nothing comes for so long.
  bool silent_for(int ms) const {
    pollfd ready = {fd_, POLLIN, 0};
    return in_.empty() && ::poll(&ready, 1, ms) == 0;
  }

  Reply read_head() {
    Reply reply;
    const std::string head = read_until("\r\n\r\n");
    if (head.compare(0, 9, "HTTP/1.1 ") != 0) throw std::runtime_error("not an answer: " + head);
    reply.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at < head.size() - 2;) {
      const size_t end = head.find("\r\n", at), colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      reply.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    return reply;
  }
  std::string read_chunk() {
    const size_t size = std::stoul(read_until("\r\n"), nullptr, 16);
    std::string chunk = read_bytes(size);
    read_until("\r\n");
    return chunk;
  }
  /// A whole answer; of HEAD without its body.
  Reply read_reply(bool body = true) {
    Reply reply = read_head();
    if (!body || reply.status == 204) return reply;
    if (reply.headers.count("content-length") > 0) {
      reply.body = read_bytes(std::stoul(reply.headers["content-length"]));
    } else if (reply.headers.count("transfer-encoding") > 0) {
      for (std::string chunk = read_chunk(); !chunk.empty(); chunk = read_chunk()) reply.body += chunk;
    } else {
      reply.body = read_all();
    }
    return reply;
  }
  Reply ask(std::string_view request) {
    send(request);
    return read_reply();
  }

 private:
  bool read_some() {
    pollfd ready = {fd_, POLLIN, 0};
    if (::poll(&ready, 1, kPatienceMs) != 1) throw std::runtime_error("the server says nothing");
    char bytes[16384];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n > 0) in_.append(bytes, static_cast<size_t>(n));
    return n > 0;
  }
  [[noreturn]] void fail(const char* what) const { throw std::runtime_error(std::string(what) + ": " + std::strerror(errno)); }
  int fd_;
  std::string in_;
};

/// "GET /path HTTP/1.1" with Host and these lines.
inline std::string get(const std::string& path, const std::string& lines = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + lines + "\r\n";
}
inline std::string post(const std::string& path, const std::string& body, const std::string& lines = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + lines +
         "\r\n" + body;
}

}  // namespace vitrine::http
