// HTTP requests: the reader fed in pieces as a socket would, and what is done with the strings in them. Whole or in pieces, a
// request must be the same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "http/admission.h"
#include "http/origin.h"
#include "http/request_reader.h"
#include "http/response_text.h"
#include "http/target.h"

using namespace vitrine::http;

namespace {

struct Read {
  bool done = false;
  std::string path, body, rest;
};

Read read(std::string_view text, size_t piece) {
  RequestReader reader({2048, 512, 4096});
  std::string in;
  Read out;
  size_t at = 0;
  for (;;) {
    const size_t used = reader.has_head() ? reader.take_body(in) : reader.take_head(in);
    in.erase(0, used);
    if (reader.problem() || (reader.has_head() && reader.done())) break;
    if (used > 0) continue;
    if (at == text.size()) break;
    const size_t n = std::min(piece, text.size() - at);
    in.append(text.substr(at, n));
    at += n;
    if (piece < 100 && in.size() > 4096) std::abort();  // what waits must be bounded
  }
  out.rest = in + std::string(text.substr(at));
  out.done = !reader.problem() && reader.has_head() && reader.done();
  if (!out.done) return out;
  out.path = reader.head().path;
  out.body = reader.take_body_text();
  if (out.body.size() > 4096 || out.path.empty()) std::abort();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 12000) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Read whole = read(text, 1 << 20), bytes = read(text, 1), some = read(text, 7);
  // Problems may be found in another order when bytes come one by one; a request may not become another.
  if (whole.done != bytes.done || whole.done != some.done) std::abort();
  if (whole.done && (whole.path != bytes.path || whole.body != bytes.body || whole.body != some.body || whole.rest != bytes.rest))
    std::abort();

  if (const auto target = parse_target(text)) {
    if (target->path.empty() || (target->path[0] != '/' && target->path != "*")) std::abort();
    if (target->path.find('\0') != std::string::npos || target->path.find('\n') != std::string::npos) std::abort();
  }
  const std::string host(host_name(text));
  if (host_allowed(text, {}) && host.size() > 9 && host != "127.0.0.1") std::abort();
  origin_allowed(text, "localhost:80", {});
  const std::string_view half = text.substr(0, size / 2), other = text.substr(size / 2);
  origin_allowed(half, other, {"https://example.org"});
  ServerOptions options;
  options.keys = {{"a", "secret"}};
  options.origins = {"https://example.org"};
  const Admission admission(options);
  Request request;
  request.method = "GET";
  request.path = "/";
  request.headers = {{"Authorization", std::string(half)}, {"Origin", std::string(other)}, {"Host", std::string(half)}};
  const auto verdict = admission.check(request, std::string(half), true);
  if (!verdict.refused && half.find("secret") == std::string_view::npos) std::abort();
  const std::string head = head_text({200, std::string(half), "", {{"X", std::string(other)}}}, {}, "id");
  if (head.find("\r\n\r\n") != head.size() - 4) std::abort();
  return 0;
}
