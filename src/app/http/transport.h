#pragma once
// The bytes of one connection, plain or through TLS, on a socket that never blocks.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace vitrine::http {

class Transport {
 public:
  // ended: the other side sends no more; plain: a handshake met HTTP without TLS
  enum class Did { some, wants_read, wants_write, ended, failed, plain };
  struct Result {
    Did did;
    size_t bytes = 0;  // with `some`
  };
  virtual ~Transport() = default;
  /// `some` once data can be exchanged.
  virtual Result handshake() = 0;
  virtual Result read(char* out, size_t n) = 0;
  virtual Result write(const char* data, size_t n) = 0;
  /// Says that nothing more will be sent. Must be called at most once.
  virtual void shut() = 0;
};

/// On `fd`, which stays the caller's.
std::unique_ptr<Transport> plain_transport(int fd);

/// Certificate and key of a server.
class TlsContext {
 public:
  /// PEM files. Errors: RunError without OpenSSL on this machine; FileError for files that cannot be read or do not match.
  TlsContext(const std::string& certificate, const std::string& key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  /// As plain_transport; may outlive the context.
  std::unique_ptr<Transport> transport(int fd) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vitrine::http
