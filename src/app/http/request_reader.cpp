#include "http/request_reader.h"

#include <algorithm>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "http/target.h"

namespace vitrine::http {

namespace beast = boost::beast::http;
using boost::beast::error_code;

// The tested parser of Boost.Beast; what it lets through and we do not is looked for in check_head.
struct RequestReader::Parser : beast::request_parser<beast::string_body> {};

namespace {

constexpr size_t kLineBytes = 1024;  // of the line before a chunk

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string_view view(boost::beast::string_view s) { return {s.data(), s.size()}; }

}  // namespace

RequestReader::RequestReader(const ReadLimits& limits) : limits_(limits), parser_(std::make_unique<Parser>()) {
  parser_->header_limit(static_cast<uint32_t>(std::min<size_t>(limits.header_bytes, UINT32_MAX)));
  parser_->body_limit(limits.body_bytes);
  parser_->eager(false);
}

RequestReader::~RequestReader() = default;

size_t RequestReader::fail(int status, std::string code, std::string message) {
  problem_ = Problem{status, std::move(code), std::move(message)};
  return 0;
}

size_t RequestReader::take_head(std::string_view in) {
  if (problem_ || has_head() || in.empty()) return 0;
  // An empty line in front is what old clients send behind a body (RFC 9112 section 2.2).
  const size_t skipped = in.substr(0, 2) == "\r\n" ? 2 : 0;
  const std::string_view text = in.substr(skipped);
  const size_t line = text.find('\n');
  if (std::min(line, text.size()) > limits_.target_bytes + 32)
    return fail(414, "target_too_long",
                "the path with its query is longer than " + std::to_string(limits_.target_bytes) + " bytes");
  const size_t end = text.find("\r\n\r\n");
  if (std::min(end, text.size()) > limits_.header_bytes)
    return fail(431, "headers_too_large", "the headers are longer than " + std::to_string(limits_.header_bytes) + " bytes");
  if (end == std::string_view::npos) {
    // Told at once rather than when the client has waited for its time-out.
    if (line != std::string_view::npos && (line == 0 || text[line - 1] != '\r'))
      return fail(400, "bad_request", "a line of the request ends in LF alone; HTTP/1.1 wants CR LF");
    return 0;
  }
  error_code ec;
  const std::string_view head = text.substr(0, end + 4);
  const size_t used = parser_->put(boost::asio::const_buffer(head.data(), head.size()), ec);
  if (ec == beast::error::body_limit)
    return fail(413, "body_too_large", "the body is larger than " + std::to_string(limits_.body_bytes) + " bytes");
  if (ec == beast::error::bad_version) return fail(505, "http_version", "the request's version is neither HTTP/1.1 nor HTTP/1.0");
  if (ec == beast::error::header_limit) return fail(431, "headers_too_large", "the headers are too long");
  if (ec || used != head.size() || !parser_->is_header_done())
    return fail(400, "bad_request", "this is not an HTTP request" + (ec ? ": " + ec.message() : std::string()));
  check_head(head);
  return problem_ ? 0 : skipped + used;
}

void RequestReader::check_head(std::string_view raw) {
  for (size_t i = 0; i < raw.size(); ++i) {
    const auto c = static_cast<unsigned char>(raw[i]);
    const bool ends_line = c == '\n' && i > 0 && raw[i - 1] == '\r',
               before_end = c == '\r' && i + 1 < raw.size() && raw[i + 1] == '\n';
    if (ends_line && i + 1 < raw.size() && (raw[i + 1] == ' ' || raw[i + 1] == '\t')) {
      fail(400, "bad_request", "a header continues in the next line, which is no longer allowed");
      return;
    }
    if ((c < 0x20 && c != '\t' && !ends_line && !before_end) || c == 0x7f) {
      fail(400, "bad_request", "the headers hold a control character");
      return;
    }
  }
  const auto& message = parser_->get();
  if (message.version() != 11 && message.version() != 10) {
    fail(505, "http_version", "the request's version is neither HTTP/1.1 nor HTTP/1.0");
    return;
  }
  int hosts = 0, lengths = 0, codings = 0;
  for (const auto& field : message) {
    const std::string_view name = view(field.name_string()), value = view(field.value());
    if (same_word(name, "host")) {
      ++hosts;
      host_ = value;
    }
    if (same_word(name, "content-length")) {
      ++lengths;
      if (!is_digits(value)) fail(400, "bad_request", "Content-Length is not one whole number");
    }
    if (same_word(name, "transfer-encoding")) {
      ++codings;
      if (!same_word(value, "chunked")) fail(501, "transfer_encoding", "the only Transfer-Encoding known here is chunked");
    }
    if (same_word(name, "expect")) {
      expects_continue_ = same_word(value, "100-continue");
      if (!expects_continue_) fail(417, "expectation", "the only Expect known here is 100-continue");
    }
    if (same_word(name, "content-encoding") && !value.empty() && !same_word(value, "identity"))
      fail(415, "content_encoding", "compressed bodies are not read here; send the body without Content-Encoding");
    request_.headers.emplace_back(name, value);
  }
  if (lengths > 1 || codings > 1 || (lengths > 0 && codings > 0))
    fail(400, "bad_request", "the request gives its length more than once (Content-Length, Transfer-Encoding)");
  if (codings > 0 && message.version() == 10) fail(400, "bad_request", "HTTP/1.0 has no Transfer-Encoding");
  if (hosts > 1) fail(400, "bad_request", "the request has more than one Host");
  if (hosts == 0 && message.version() == 11) fail(400, "bad_request", "the request has no Host, which HTTP/1.1 wants");
  request_.method = view(message.method_string());
  request_.target = view(message.target());
  const auto target = parse_target(request_.target);
  if (!target || (target->path == "*" && request_.method != "OPTIONS")) {
    fail(400, "bad_request", "the request's target is not a path, or not percent-encoded UTF-8");
    return;
  }
  if (request_.target.size() > limits_.target_bytes)
    fail(414, "target_too_long", "the path with its query is longer than " + std::to_string(limits_.target_bytes) + " bytes");
  request_.path = target->path;
  request_.query = target->query;
  if (!target->host.empty()) host_ = target->host;  // it has the last word (RFC 9112 section 3.2.2)
  is_head_ = request_.method == "HEAD";
  if (is_head_) request_.method = "GET";
  static constexpr std::string_view kMethods[] = {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"};
  if (std::find(std::begin(kMethods), std::end(kMethods), request_.method) == std::end(kMethods) && !problem_)
    fail(501, "method", "the method " + request_.method + " is not known here");
}

size_t RequestReader::take_body(std::string_view in) {
  if (problem_ || done() || !has_head()) return 0;
  size_t used = 0;
  while (used < in.size() && !done()) {
    error_code ec;
    const std::string_view rest = in.substr(used);
    // Whatever lacks of a body in chunks ends in "0\r\n\r\n". Beast asserts that it is not asked again about less of its last
    // chunk.
    if (parser_->chunked() && rest.size() < 5) break;
    const size_t n = parser_->put(boost::asio::const_buffer(rest.data(), rest.size()), ec);
    used += n;
    if (ec == beast::error::need_more) {
      if (n > 0) continue;
      if (rest.size() > kLineBytes && parser_->chunked()) return fail(400, "bad_request", "the line of a chunk is too long");
      break;
    }
    if (ec == beast::error::body_limit)
      return fail(413, "body_too_large", "the body is larger than " + std::to_string(limits_.body_bytes) + " bytes");
    if (ec) return fail(400, "bad_request", "the body cannot be read: " + ec.message());
    if (n == 0) break;
  }
  return used;
}

bool RequestReader::has_head() const { return parser_->is_header_done(); }
bool RequestReader::done() const { return parser_->is_done(); }
bool RequestReader::keep_alive() const { return parser_->keep_alive(); }
bool RequestReader::is_http_1_0() const { return parser_->get().version() == 10; }
size_t RequestReader::body_size() const { return parser_->get().body().size(); }
std::string RequestReader::take_body_text() { return std::move(parser_->get().body()); }
Request RequestReader::head() const { return request_; }

}  // namespace vitrine::http
