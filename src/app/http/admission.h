#pragma once
// Who may ask: Host, Origin (CORS) and API keys, looked at before the body is read.
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "http/keys.h"
#include "http/request_reader.h"

namespace vitrine::http {

class Admission {
 public:
  /// Errors: UsageError for keys and origins that cannot be.
  explicit Admission(const ServerOptions& options);

  struct Verdict {
    std::optional<Problem> refused;
    std::optional<Response> answered;  // OPTIONS of a browser's preflight, or of *: the server's own answer
    Fields headers;                    // to be added to the answer, whatever it is
    std::string owner;                 // the key's name; empty without one
    bool admin = true;                 // Request::admin
  };
  /// `host`: what the client calls this server. `check_host`: the connection came over loopback, or there is a list.
  Verdict check(const Request& request, const std::string& host, bool check_host) const;
  bool has_keys() const { return !keys()->empty(); }
  /// In the place of those of before, from the next request on. Thread-safe. Errors: UsageError as Keys, and for none where there
  /// were some; then those of before stay.
  void set_keys(const std::vector<ApiKey>& keys);

 private:
  std::shared_ptr<const Keys> keys() const;

  mutable std::mutex mutex_;
  std::shared_ptr<const Keys> keys_;
  std::vector<std::string> open_paths_, allowed_hosts_, origins_;
};

}  // namespace vitrine::http
