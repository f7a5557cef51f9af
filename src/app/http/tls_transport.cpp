// TLS by OpenSSL, on the connection's own socket. The library is loaded when a certificate is given: linked, it would add three
// milliseconds to the start of every command, and the packages that carry their libraries would carry an OpenSSL that grows old.
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/error.h"
#include "base/loaded_library.h"
#include "http/transport.h"

namespace vitrine::http {
namespace {

/// The functions of OpenSSL that we use.
struct Functions {
  decltype(&::TLS_server_method) server_method;
  decltype(&::SSL_CTX_new) context_new;
  decltype(&::SSL_CTX_free) context_free;
  decltype(&::SSL_CTX_ctrl) context_ctrl;
  decltype(&::SSL_CTX_set_options) set_options;
  decltype(&::SSL_CTX_set_default_passwd_cb) set_password_callback;
  decltype(&::SSL_CTX_set_alpn_select_cb) set_alpn_callback;
  decltype(&::SSL_CTX_use_certificate_chain_file) use_certificates;
  decltype(&::SSL_CTX_use_PrivateKey_file) use_key;
  decltype(&::SSL_new) connection_new;
  decltype(&::SSL_free) connection_free;
  decltype(&::SSL_set_fd) set_fd;
  decltype(&::SSL_accept) accept;
  decltype(&::SSL_read) read;
  decltype(&::SSL_write) write;
  decltype(&::SSL_shutdown) shutdown;
  decltype(&::SSL_get_error) get_error;
  decltype(&::ERR_clear_error) clear_errors;
  decltype(&::ERR_peek_last_error) last_error;
  decltype(&::ERR_error_string_n) error_text;
};

Functions load() {
  const LoadedLibrary library("TLS needs", "libssl.so.3", "libssl3");
  Functions f{};
  library.find(f.server_method, "TLS_server_method");
  library.find(f.context_new, "SSL_CTX_new");
  library.find(f.context_free, "SSL_CTX_free");
  library.find(f.context_ctrl, "SSL_CTX_ctrl");
  library.find(f.set_options, "SSL_CTX_set_options");
  library.find(f.set_password_callback, "SSL_CTX_set_default_passwd_cb");
  library.find(f.set_alpn_callback, "SSL_CTX_set_alpn_select_cb");
  library.find(f.use_certificates, "SSL_CTX_use_certificate_chain_file");
  library.find(f.use_key, "SSL_CTX_use_PrivateKey_file");
  library.find(f.connection_new, "SSL_new");
  library.find(f.connection_free, "SSL_free");
  library.find(f.set_fd, "SSL_set_fd");
  library.find(f.accept, "SSL_accept");
  library.find(f.read, "SSL_read");
  library.find(f.write, "SSL_write");
  library.find(f.shutdown, "SSL_shutdown");
  library.find(f.get_error, "SSL_get_error");
  library.find(f.clear_errors, "ERR_clear_error");
  library.find(f.last_error, "ERR_peek_last_error");
  library.find(f.error_text, "ERR_error_string_n");
  return f;
}

const Functions& openssl() {
  static const Functions functions = load();
  return functions;
}

std::string last_error() {
  std::array<char, 256> text = {};
  const unsigned long code = openssl().last_error();
  if (code == 0) return "unknown error";
  openssl().error_text(code, text.data(), text.size());
  return text.data();
}

// A server that starts by itself has nobody to ask for a passphrase.
int no_password(char*, int, int, void*) { return 0; }

// HTTP/1.1 for clients that say what they speak (RFC 7301); those that know only others hear so in their own words later.
int choose_http_1_1(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned int size, void*) {
  static constexpr std::string_view kWanted = "http/1.1";
  for (unsigned int at = 0; at < size; at += 1U + in[at]) {
    const unsigned int n = in[at];
    if (n > size - at - 1) break;
    if (std::string_view(reinterpret_cast<const char*>(in + at + 1), n) != kWanted) continue;
    *out = in + at + 1;
    *out_size = static_cast<unsigned char>(n);
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_NOACK;
}

class TlsTransport : public Transport {
 public:
  TlsTransport(SSL_CTX* context, int fd) : ssl_(openssl().connection_new(context)) {
    if (ssl_ == nullptr || openssl().set_fd(ssl_, fd) != 1) {
      openssl().connection_free(ssl_);
      throw RunError("TLS: " + last_error());
    }
  }
  ~TlsTransport() override { openssl().connection_free(ssl_); }
  TlsTransport(const TlsTransport&) = delete;
  TlsTransport& operator=(const TlsTransport&) = delete;

  Result handshake() override {
    openssl().clear_errors();
    const Result result = outcome(openssl().accept(ssl_));
    if (result.did == Did::failed && ERR_GET_REASON(openssl().last_error()) == SSL_R_HTTP_REQUEST) return {Did::plain};
    ready_ = ready_ || result.did == Did::some;
    return result;
  }
  Result read(char* out, size_t n) override {
    openssl().clear_errors();
    return outcome(openssl().read(ssl_, out, static_cast<int>(std::min<size_t>(n, INT_MAX))));
  }
  Result write(const char* data, size_t n) override {
    openssl().clear_errors();
    return outcome(openssl().write(ssl_, data, static_cast<int>(std::min<size_t>(n, INT_MAX))));
  }
  void shut() override {
    if (!ready_ || failed_) return;
    openssl().clear_errors();
    openssl().shutdown(ssl_);
  }

 private:
  Result outcome(int n) {
    if (n > 0) return {Did::some, static_cast<size_t>(n)};
    switch (openssl().get_error(ssl_, n)) {
      case SSL_ERROR_WANT_READ: return {Did::wants_read};
      case SSL_ERROR_WANT_WRITE: return {Did::wants_write};
      case SSL_ERROR_ZERO_RETURN: return {Did::ended};
      default: failed_ = true; return {Did::failed};
    }
  }

  SSL* ssl_;
  bool ready_ = false, failed_ = false;
};

}  // namespace

struct TlsContext::Impl {
  SSL_CTX* context = nullptr;
  ~Impl() {
    if (context != nullptr) openssl().context_free(context);
  }
};

TlsContext::TlsContext(const std::string& certificate, const std::string& key) : impl_(std::make_unique<Impl>()) {
  const Functions& f = openssl();
  // OpenSSL's own words for a missing file are hard to read.
  for (const std::string& path : {certificate, key})
    if (::access(path.c_str(), R_OK) != 0) throw FileError(path, std::strerror(errno));
  impl_->context = f.context_new(f.server_method());
  SSL_CTX* context = impl_->context;
  if (context == nullptr) throw RunError("TLS: " + last_error());
  f.set_password_callback(context, no_password);
  f.set_alpn_callback(context, choose_http_1_1, nullptr);
  f.set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  f.context_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
  // Buffers of idle connections are given back; a write goes on from another address, since what waits may grow and move.
  f.context_ctrl(context, SSL_CTRL_MODE,
                 SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_ENABLE_PARTIAL_WRITE, nullptr);
  f.clear_errors();
  if (f.use_certificates(context, certificate.c_str()) != 1)
    throw FileError(certificate, "holds no certificate that can be used (PEM, the server's own first): " + last_error());
  f.clear_errors();
  if (f.use_key(context, key.c_str(), SSL_FILETYPE_PEM) != 1)
    throw FileError(key, "is not the private key of " + certificate + " (PEM, without a passphrase): " + last_error());
}

TlsContext::~TlsContext() = default;

std::unique_ptr<Transport> TlsContext::transport(int fd) const { return std::make_unique<TlsTransport>(impl_->context, fd); }

}  // namespace vitrine::http
