#include "cli/service_manager.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace vitrine::cli {
namespace {

std::string taken_from_environment(const char* name) {
  const char* const value = std::getenv(name);
  std::string text = value != nullptr ? value : "";
  ::unsetenv(name);
  return text;
}

int64_t number_or_zero(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 ? value : 0;
}

}  // namespace

ServiceManager::ServiceManager() : socket_(taken_from_environment("NOTIFY_SOCKET")), every_(0) {
  const int64_t period = number_or_zero(taken_from_environment("WATCHDOG_USEC"));
  const std::string of = taken_from_environment("WATCHDOG_PID");
  if (of.empty() || number_or_zero(of) == ::getpid()) every_ = std::chrono::microseconds(period / 2);
}

void ServiceManager::ready(const std::string& status) const { send("READY=1\nSTATUS=" + status); }
void ServiceManager::stopping() const { send("STOPPING=1"); }

void ServiceManager::alive() {
  next_ = std::chrono::steady_clock::now() + every_;
  send("WATCHDOG=1");
}

// A manager that cannot be told is no reason to stop serving, nor to wait for long.
void ServiceManager::send(const std::string& text) const {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (socket_.empty() || socket_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const timeval patience{.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  static_cast<void>(::sendto(fd, text.data(), text.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address), size));
  ::close(fd);
}

}  // namespace vitrine::cli
