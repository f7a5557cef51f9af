#include <openssl/ssl.h>

#include "base/error.h"
#include "http/transport.h"

namespace vitrine::http {
struct TlsContext::Impl {};
TlsContext::TlsContext(const std::string&, const std::string&) { throw RunError("TLS comes next"); }
TlsContext::~TlsContext() = default;
std::unique_ptr<Transport> TlsContext::transport(int fd) const { return plain_transport(fd); }
}  // namespace vitrine::http
