#include "grammar/patterns.h"

#include <algorithm>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {
namespace {

// The end of the class of characters or of the group that begins at `begin`, behind its bracket; npos: it has none.
size_t bracket_end(std::string_view regex, size_t begin) {
  size_t depth = 0;
  for (size_t i = begin; i < regex.size(); ++i) {
    if (regex[i] == '\\') {
      ++i;
    } else if (regex[i] == '[') {
      size_t first = i + 1;
      if (first < regex.size() && regex[first] == '^') ++first;
      for (i = first; i < regex.size() && (regex[i] != ']' || i == first); ++i)
        if (regex[i] == '\\') ++i;
      if (depth == 0) return i < regex.size() ? i + 1 : std::string_view::npos;
    } else if (regex[i] == '(') {
      ++depth;
    } else if (regex[i] == ')' && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

// A pattern for the texts that [class]*$ does not fill: those that have another character.
std::optional<std::string> outside_class(std::string_view body) {
  if (!body.starts_with('[')) return {};
  const size_t end = bracket_end(body, 0);
  if (end == std::string_view::npos || body.substr(end) != "*$") return {};
  std::string inside(body.substr(1, end - 2));
  return inside.starts_with('^') ? "[" + inside.substr(1) + "]" : "[^" + inside + "]";
}

// What pydantic writes for Decimal with max_digits, after its look-ahead for a digit, and that with decimal_places: there, and in
// the second choice, stands a look-ahead that limits the digits of both sides of the point. The rewritten pattern has fewer
// texts: the original one does not hold the end of the first choice.
std::optional<std::string> decimal_digits(const std::string& rest) {
  static const std::regex kForm(
      R"(\[\+-\]\?0\*\(\?:\\d\{0,(\d{1,3})\}\|\(\?=\[\\d\.\]\{1,(\d{1,3})\}0\*\$\)(\\d\*|\\d\{0,\d{1,3}\})\\\.(\\d\*|\\d\{0,(\d{1,3})\})0\*\$\)\$?)");
  std::smatch parts;
  if (!std::regex_match(rest, parts, kForm)) return {};
  const int whole = std::stoi(parts[1]), digits = std::stoi(parts[2]) - 1;
  const int places = parts[5].matched ? std::stoi(parts[5]) : digits;
  if (digits < whole || digits > 100) return {};
  std::string choices;
  for (int n = 0; n <= whole; ++n)
    choices += (n == 0 ? "" : "|") + ("\\d{" + std::to_string(n) + "}(\\.\\d{0,") + std::to_string(std::min(places, digits - n)) +
               "}0*)?";
  return "[+-]?0*(" + choices + ")$";
}

}  // namespace

void split_look_ahead(OrderedJson& schema) {
  const auto pattern = schema.find("pattern");
  if (pattern == schema.end() || !pattern->is_string()) return;
  std::string rest = pattern->get<std::string>();
  if (!rest.starts_with("^(?=") && !rest.starts_with("^(?!")) return;
  rest = rest.substr(1);
  std::vector<std::string> all;
  while (rest.starts_with("(?=") || rest.starts_with("(?!")) {
    const size_t end = bracket_end(rest, 0);
    if (end == std::string::npos) return;
    std::string body = rest.substr(3, end - 4);
    if (body.starts_with('^')) body = body.substr(1);
    if (rest[2] == '=') {
      all.push_back(body.find('|') == std::string::npos ? "^" + body : "^(?:" + body + ")");
    } else if (std::optional<std::string> other = outside_class(body)) {
      all.push_back(std::move(*other));
    } else {
      return;
    }
    rest = rest.substr(end);
  }
  if (const std::optional<std::string> decimal = decimal_digits(rest)) rest = *decimal;
  *pattern = "^" + rest;
  const OrderedJson type = schema.value("type", OrderedJson());
  OrderedJson& parts = schema["allOf"];
  if (!parts.is_array()) parts = OrderedJson::array();
  for (std::string& one : all) {
    OrderedJson part = type.is_null() ? OrderedJson::object() : OrderedJson{{"type", type}};
    part["pattern"] = std::move(one);
    parts.push_back(std::move(part));
  }
}

}  // namespace vitrine
