#pragma once
// One request out of the bytes of a connection. It knows no sockets, so that tests and the fuzzer can feed it.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

namespace vitrine::http {

struct ReadLimits {
  size_t header_bytes, target_bytes, body_bytes;
};

/// Why a request is refused: the status, a word for programs, a sentence for people.
struct Problem {
  int status;
  std::string code, message;
};

/// Strict where others guess: bare line feeds, folded headers, two lengths, a length beside chunks and codings other than chunked
/// are refused, since a proxy in front may read them otherwise (request smuggling; RFC 9112 sections 2.2, 5.2, 6.3, 11.2).
class RequestReader {
 public:
  explicit RequestReader(const ReadLimits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  /// Takes the headers from `in`, which begins with the request: the bytes that were used, 0 until they are complete. `in` must
  /// be what it was before and more.
  size_t take_head(std::string_view in);
  bool has_head() const;
  /// Takes some of the body from `in`; then the bytes that were used, perhaps 0 if more are needed.
  size_t take_body(std::string_view in);
  bool done() const;
  /// Set once the request cannot be read on.
  const std::optional<Problem>& problem() const { return problem_; }

  // With has_head():
  bool keep_alive() const;
  bool is_http_1_0() const;
  bool is_head() const { return is_head_; }
  bool expects_continue() const { return expects_continue_; }
  const std::string& host() const { return host_; }  // of an absolute target, else of Host; empty without either
  size_t body_size() const;                          // as read so far
  /// All but id and owner; the body is there once done(). To be called once for the headers; finish() adds the body.
  Request head() const;
  std::string take_body_text();

 private:
  struct Parser;
  size_t fail(int status, std::string code, std::string message);
  void check_head(std::string_view raw);
  ReadLimits limits_;
  std::unique_ptr<Parser> parser_;
  std::optional<Problem> problem_;
  Request request_;
  std::string host_;
  bool is_head_ = false, expects_continue_ = false;
};

}  // namespace vitrine::http
