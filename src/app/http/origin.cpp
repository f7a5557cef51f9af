#include "http/origin.h"

#include <algorithm>

#include "base/error.h"
#include "http/message.h"

namespace vitrine::http {
namespace {

constexpr std::string_view kThisMachine = "localhost";  // in a list of origins: its pages at any port

bool is_port(std::string_view text) {
  return text.size() <= 5 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// host[:port] of an origin, with the scheme's own port left out; empty if it is none.
std::string_view authority(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.size() > scheme.size() && same_word(origin.substr(0, scheme.size()), scheme)) return origin.substr(scheme.size());
  return {};
}

std::string_view without_usual_port(std::string_view host) {
  for (const std::string_view port : {":80", ":443"})
    if (host.size() > port.size() && host.substr(host.size() - port.size()) == port)
      return host.substr(0, host.size() - port.size());
  return host;
}

bool names_this_machine(std::string_view name) { return same_word(name, "localhost") || name == "127.0.0.1" || name == "[::1]"; }

}  // namespace

std::string_view host_name(std::string_view host) {
  size_t end = 0;
  if (!host.empty() && host[0] == '[') {
    end = host.find(']');
    if (end == std::string_view::npos) return {};
    ++end;
  } else {
    end = std::min(host.find(':'), host.size());
  }
  const std::string_view name = host.substr(0, end), rest = host.substr(end);
  if (!rest.empty() && (rest[0] != ':' || !is_port(rest.substr(1)))) return {};
  return name;
}

bool host_allowed(std::string_view host, const std::vector<std::string>& allowed) {
  const std::string_view name = host_name(host);
  if (name.empty()) return false;
  if (names_this_machine(name)) return true;
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& one) { return same_word(one, name) || same_word(one, host); });
}

bool origin_allowed(std::string_view origin, std::string_view host, const std::vector<std::string>& allowed) {
  const std::string_view from = authority(origin);
  for (const std::string& one : allowed)
    if (one == "*" || (one == kThisMachine ? names_this_machine(host_name(from)) : same_word(one, origin))) return true;
  return !from.empty() && !host.empty() && same_word(without_usual_port(from), without_usual_port(host));
}

void check_origin(const std::string& origin) {
  if (origin == "*" || origin == "null" || origin == kThisMachine) return;
  const std::string_view host = authority(origin);
  if (host.empty() || host_name(host).empty() || host.find_first_of("/?#@ ") != std::string_view::npos)
    throw UsageError(
        "\"" + origin +
        "\" is not the origin of a page; expected a scheme and a host, as https://example.org:8443, localhost, or *");
}

}  // namespace vitrine::http
