#pragma once
// HTTP requests through libcurl, several at a time on one thread. No redirect is followed here: who asks decides what may be sent
// to the next address.
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hub/settings.h"

namespace vitrine {

struct HttpRequest {
  std::string url;
  bool head = false;                      // only the headers
  std::string token;                      // sent to this address as it is; empty: none
  std::string range;                      // "0-99"; empty: all of it
  std::optional<std::string> body = {};   // of a POST; nothing: GET
  std::vector<std::string> headers = {};  // further ones: "Content-Type: application/json"
  size_t largest_body = size_t{64} << 10;

  /// Gets the body of an answer with status 200 or 206 as it arrives; false ends the request. Without it the body is collected.
  std::function<bool(const struct HttpResponse&, std::span<const std::byte>)> sink;
};

struct HttpResponse {
  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without a sink, and of errors the beginning
  bool whole = false;                          // the answer came to its end
  std::string failure;                         // otherwise what libcurl says of it
  bool untrusted = false;                      // the failure is one of certificates
  bool unreachable = false;                    // no connection came about
  bool too_long = false;                       // the body is longer than the request allows

  std::string header(const std::string& lower_case_name) const;
};

/// A request under way. It must outlive its time in the client.
struct Transfer {
  HttpRequest request;
  HttpResponse response;
  void* handle = nullptr;  // libcurl's
  void* request_headers = nullptr;
};

class HttpClient {
 public:
  explicit HttpClient(const HubSettings& settings);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void start(Transfer& transfer);
  /// Ends a request without an answer; nothing happens if it is not under way.
  void cancel(Transfer& transfer);
  /// Lets the requests go on until one has ended, which it returns, or `milliseconds` have passed (null).
  Transfer* wait(int milliseconds);

  HttpResponse fetch(HttpRequest request);

 private:
  void finish(Transfer& transfer);

  const HubSettings& settings_;
  void* multi_ = nullptr;
};

/// The address that a Location header in an answer of `url` means. Errors: InputError if it is none.
std::string redirect_target(const std::string& url, const std::string& location);
/// "https://host:443": two addresses may share a token if this is the same. Errors: InputError for what is no http(s) URL.
std::string origin_of(const std::string& url);
/// As part of a path: everything but letters, digits, "-", "_", "." and "~" as %XX. Slashes stay with `keep_slashes`.
std::string url_escaped(std::string_view text, bool keep_slashes);

}  // namespace vitrine
