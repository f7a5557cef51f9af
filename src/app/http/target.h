#pragma once
// The target of a request line: path and query. RFC 9112 section 3.2, RFC 3986.
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

namespace vitrine::http {

struct Target {
  std::string path;  // decoded; "*" of OPTIONS stays
  Fields query;      // decoded, '+' is a space
  std::string host;  // of an absolute target ("http://host/path"), with its port; else empty
};

/// Takes a target apart. Nothing where it is not one: no '/' in front, a bad %xx, bytes that decode to no UTF-8 or to a control
/// character.
std::optional<Target> parse_target(std::string_view target);

/// `text` with %xx decoded, and '+' as a space with `plus`. Nothing as above.
std::optional<std::string> percent_decoded(std::string_view text, bool plus);

}  // namespace vitrine::http
