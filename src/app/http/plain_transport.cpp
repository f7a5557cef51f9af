#include <sys/socket.h>

#include <cerrno>

#include "http/transport.h"

namespace vitrine::http {
namespace {

class PlainTransport : public Transport {
 public:
  explicit PlainTransport(int fd) : fd_(fd) {}
  Result handshake() override { return {Did::some}; }
  Result read(char* out, size_t n) override {
    for (;;) {
      const ssize_t got = ::recv(fd_, out, n, 0);
      if (got > 0) return {Did::some, static_cast<size_t>(got)};
      if (got == 0) return {Did::ended};
      if (errno == EINTR) continue;
      return {errno == EAGAIN || errno == EWOULDBLOCK ? Did::wants_read : Did::failed};
    }
  }
  Result write(const char* data, size_t n) override {
    for (;;) {
      const ssize_t sent = ::send(fd_, data, n, MSG_NOSIGNAL);
      if (sent >= 0) return {Did::some, static_cast<size_t>(sent)};
      if (errno == EINTR) continue;
      return {errno == EAGAIN || errno == EWOULDBLOCK ? Did::wants_write : Did::failed};
    }
  }
  void shut() override { ::shutdown(fd_, SHUT_WR); }

 private:
  int fd_;
};

}  // namespace

std::unique_ptr<Transport> plain_transport(int fd) { return std::make_unique<PlainTransport>(fd); }

}  // namespace vitrine::http
