#include "http/listen.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"

namespace vitrine::http {
namespace {

constexpr int kBacklog = 1024;

std::string system_error() { return std::strerror(errno); }

// The address of a socket, or of the one at its other end.
sockaddr_storage own_address(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return address;
}

std::string address_text(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  if (address.ss_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text.data(), text.size());
  else if (address.ss_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text.data(), text.size());
  else
    return "unix";
  return text.data();
}

// The address of a path; the caller has checked that it fits.
sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

bool somebody_listens(const sockaddr_un& address) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return true;
  const bool answered =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN || errno == EINPROGRESS;
  ::close(fd);
  return answered;
}

}  // namespace

Listener::Listener(Listener&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::exchange(other.path_, {})), device_(other.device_), inode_(other.inode_) {}

Listener::~Listener() {
  struct stat now = {};
  if (!path_.empty() && ::lstat(path_.c_str(), &now) == 0 && now.st_dev == device_ && now.st_ino == inode_)
    ::unlink(path_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

namespace {

// Adds the addresses of one name. With port 0 they share the port of the first listener there is.
void listen_at(const std::string& host, int port, std::vector<Listener>& listeners) {
  addrinfo wanted = {}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (code != 0) throw UsageError("\"" + host + "\" is no address of this machine to listen on: " + ::gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  const size_t before = listeners.size();
  std::string problem;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    sockaddr_storage address = {};
    std::memcpy(&address, one->ai_addr, std::min<size_t>(one->ai_addrlen, sizeof address));
    const std::string where = address_text(address) + " port " + std::to_string(port);
    Listener listener(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), {});
    if (listener.fd() < 0) {  // a kernel without IPv6
      problem = where + ": " + system_error();
      continue;
    }
    const int yes = 1;
    ::setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (one->ai_family == AF_INET6) ::setsockopt(listener.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (port == 0 && !listeners.empty()) {
      const uint16_t shared = htons(port_of(listeners[0].fd()));
      if (address.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(address).sin_port = shared;
      if (address.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(address).sin6_port = shared;
    }
    if (::bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), one->ai_addrlen) != 0 ||
        ::listen(listener.fd(), kBacklog) != 0) {
      const int why = errno;
      problem =
          where + ": " + system_error() + (why == EADDRINUSE ? "; another program listens there, so give another --port" : "");
      if (why == EADDRINUSE || why == EACCES) throw RunError("cannot listen on " + problem);
      continue;  // an address of the name that this machine lacks, as ::1 without IPv6
    }
    listeners.push_back(std::move(listener));
  }
  if (listeners.size() == before) throw RunError("cannot listen on " + problem);
}

}  // namespace

std::vector<Listener> listen_tcp(const std::string& hosts, int port) {
  std::vector<Listener> listeners;
  for (size_t begin = 0; begin <= hosts.size();) {
    const size_t end = std::min(hosts.find(',', begin), hosts.size());
    if (end == begin) throw UsageError("\"" + hosts + "\" has an empty address; give one, or several as 127.0.0.1,::1");
    listen_at(hosts.substr(begin, end - begin), port, listeners);
    begin = end + 1;
  }
  return listeners;
}

Listener listen_unix(const std::string& path) {
  const sockaddr_un address = unix_address(path);
  if (path.size() >= sizeof address.sun_path)
    throw UsageError(path + ": the path of a Unix socket has at most " + std::to_string(sizeof address.sun_path - 1) + " bytes");
  struct stat there = {};
  if (::lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) throw UsageError(path + ": is there and is no socket; name another path for --unix-socket");
    if (somebody_listens(address)) throw RunError(path + ": another program listens there; name another path for --unix-socket");
    ::unlink(path.c_str());
  }
  Listener listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), {});
  if (listener.fd() < 0) throw RunError(path + ": " + system_error());
  // Nobody else can connect in between: a socket takes connections only once listen() was called.
  if (::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw RunError("cannot listen on " + path + ": " + system_error());
  if (::lstat(path.c_str(), &there) == 0) {
    listener.device_ = there.st_dev;
    listener.inode_ = there.st_ino;
    listener.path_ = path;
  }
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(listener.fd(), kBacklog) != 0)
    throw RunError("cannot listen on " + path + ": " + system_error());
  return listener;
}

uint16_t port_of(int fd) {
  const sockaddr_storage address = own_address(fd);
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

bool is_loopback(int fd) {
  const sockaddr_storage address = own_address(fd);
  if (address.ss_family == AF_INET) return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
  if (address.ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  return true;
}

std::string address_group(const std::string& address) {
  sockaddr_storage given = {};
  in6_addr& bytes = reinterpret_cast<sockaddr_in6&>(given).sin6_addr;
  if (::inet_pton(AF_INET6, address.c_str(), &bytes) != 1) return address;
  if (IN6_IS_ADDR_V4MAPPED(&bytes)) {
    sockaddr_storage mapped = {};
    mapped.ss_family = AF_INET;
    std::memcpy(&reinterpret_cast<sockaddr_in&>(mapped).sin_addr, bytes.s6_addr + 12, 4);
    return address_text(mapped);
  }
  given.ss_family = AF_INET6;
  std::memset(bytes.s6_addr + 8, 0, 8);
  return address_text(given) + "/64";
}

int accept_one(int fd, std::string& peer) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  const int got = ::accept4(fd, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (got < 0) return got;
  peer = address_text(address);
  if (address.ss_family == AF_UNIX) return got;
  // Pieces go out at once, and a peer whose machine is gone is noticed within two minutes.
  const auto set = [&](int level, int option, int value) { ::setsockopt(got, level, option, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  return got;
}

}  // namespace vitrine::http
