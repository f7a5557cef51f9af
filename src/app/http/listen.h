#pragma once
// The sockets that a server listens on.
#include <cstdint>
#include <string>
#include <vector>

namespace vitrine::http {

/// A socket that listens, does not block, and is closed with this.
class Listener {
 public:
  Listener(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~Listener();  // also removes the Unix socket's file, if it is still ours
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  int fd() const { return fd_; }
  bool is_unix() const { return !path_.empty(); }

 private:
  int fd_;
  std::string path_;
  uint64_t device_ = 0, inode_ = 0;  // of the file at path_
  friend Listener listen_unix(const std::string& path);
};

/// Every address that `hosts` stands for, several names or addresses separated by commas, all at one port. Errors: UsageError for
/// a name that is unknown; RunError for an address that is taken or not this machine's.
std::vector<Listener> listen_tcp(const std::string& hosts, int port);
/// Mode 0600. A socket that nobody listens on any more is replaced. Errors: UsageError for a path that is too long or something
/// else; RunError if somebody listens there.
Listener listen_unix(const std::string& path);

/// The port of a listening socket.
uint16_t port_of(int fd);
/// Whether what listens can be reached from this machine alone.
bool is_loopback(int fd);

/// What addresses of one client have in common: "2001:db8:1:2::/64" of an IPv6 address, since whoever has one usually has all of
/// that network; an IPv4 address itself, written either way; "unix" as it is.
std::string address_group(const std::string& address);

/// A connection that is waiting at `fd`, which then does not block: its socket, else -1 and errno. `peer` becomes its address,
/// without the port.
int accept_one(int fd, std::string& peer);

}  // namespace vitrine::http
