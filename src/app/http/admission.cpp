#include "http/admission.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "http/origin.h"

namespace vitrine::http {
namespace {

constexpr std::string_view kMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

}  // namespace

Admission::Admission(const ServerOptions& options)
    : keys_(std::make_shared<const Keys>(options.keys)),
      open_paths_(options.open_paths),
      allowed_hosts_(options.allowed_hosts),
      origins_(options.origins) {
  for (const std::string& origin : origins_) check_origin(origin);
}

std::shared_ptr<const Keys> Admission::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

void Admission::set_keys(const std::vector<ApiKey>& keys) {
  if (keys.empty() && has_keys()) throw UsageError("there is no API key; a server that was started with keys needs one");
  auto made = std::make_shared<const Keys>(keys);
  const std::lock_guard lock(mutex_);
  keys_ = std::move(made);
}

Admission::Verdict Admission::check(const Request& request, const std::string& host, bool check_host) const {
  Verdict verdict;
  const auto refuse = [&](int status, std::string code, std::string message) {
    verdict.refused = Problem{status, std::move(code), std::move(message)};
    return verdict;
  };
  if (check_host && !host.empty() && !host_allowed(host, allowed_hosts_))
    return refuse(403, "host_not_allowed",
                  "this server answers to localhost, 127.0.0.1 and [::1], not to \"" + std::string(host_name(host)) +
                      "\"; start it with --allow-host " + std::string(host_name(host)) + " if that is its name");
  const std::string* origin = request.header("origin");
  if (origin != nullptr) {
    if (!origin_allowed(*origin, host, origins_))
      return refuse(403, "origin_not_allowed",
                    "pages of " + *origin + " may not ask here; start the server with --cors-origin " + *origin + " if they may");
    verdict.headers.emplace_back("Access-Control-Allow-Origin", *origin);
    verdict.headers.emplace_back("Vary", "Origin");
    verdict.headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, retry-after");
  }
  const bool preflight = origin != nullptr && request.header("access-control-request-method") != nullptr;
  if (request.method == "OPTIONS" && (preflight || request.path == "*")) {
    Response response{200, "", "", {{"Allow", std::string(kMethods)}}};  // old browsers take no 204 here
    if (preflight) {
      response.headers.emplace_back("Access-Control-Allow-Methods", kMethods);
      if (const std::string* wanted = request.header("access-control-request-headers"))
        response.headers.emplace_back("Access-Control-Allow-Headers", *wanted);
      if (request.header("access-control-request-private-network") != nullptr)
        response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
      response.headers.emplace_back("Access-Control-Max-Age", "600");
    }
    verdict.answered = std::move(response);
    return verdict;
  }
  const std::shared_ptr<const Keys> keys = this->keys();
  if (keys->empty()) return verdict;
  if (const Keys::Key* key = keys->find(request)) {
    verdict.owner = key->name;
    verdict.admin = key->admin;
    return verdict;
  }
  verdict.admin = false;
  if (std::find(open_paths_.begin(), open_paths_.end(), request.path) != open_paths_.end()) return verdict;
  verdict.headers.emplace_back("WWW-Authenticate", "Bearer");
  return refuse(
      401, "invalid_api_key",
      "this server wants an API key, as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\", and the request has none that it "
      "knows");
}

}  // namespace vitrine::http
