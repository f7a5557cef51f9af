#pragma once
// Which sites may ask: the Host that a client believes it talks to, and the Origin of the page that makes it ask.
#include <string>
#include <string_view>
#include <vector>

namespace vitrine::http {

/// The name in Host without its port: "localhost" of "localhost:8080", "[::1]" of "[::1]:8080". Empty if that is not a host.
std::string_view host_name(std::string_view host);

/// Whether `host` (a Host header) names this machine itself, or one of `allowed`. A server on loopback answers no other: a page
/// whose name was made to point at 127.0.0.1 (DNS rebinding) sends its own name.
bool host_allowed(std::string_view host, const std::vector<std::string>& allowed);

/// Whether pages of `origin` ("https://example.org", or "null") may ask: one of `allowed`, in which "*" stands for all and
/// "localhost" for pages of this machine at any port, or the page came from this server, which the client calls `host`.
bool origin_allowed(std::string_view origin, std::string_view host, const std::vector<std::string>& allowed);

/// Checks that `origin` can be in the list. Errors: UsageError.
void check_origin(const std::string& origin);

}  // namespace vitrine::http
