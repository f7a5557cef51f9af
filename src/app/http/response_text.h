#pragma once
// The head of an answer as it goes over the wire. RFC 9112 section 4.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

namespace vitrine::http {

struct Framing {
  bool http_1_0 = false, keep_alive = true;
  bool chunked = false;  // else `length`, else the body ends with the connection
  std::optional<uint64_t> length;
};

/// Status line and headers up to the empty line. Line ends and other control characters in a header that a route gave become
/// spaces.
std::string head_text(const Response& response, const Framing& framing, std::string_view request_id);

/// One chunk of a body with its length in front, appended to `out`.
void append_chunk(std::string& out, std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

/// The client's request id if it is 1 to 128 letters, digits or of "-_.", else a new one: "req_" and 24 hexadecimal digits.
std::string request_id(const std::string* given);

}  // namespace vitrine::http
