#include "http/target.h"

#include <algorithm>

#include "base/utf8.h"

namespace vitrine::http {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

std::optional<std::string> percent_decoded(std::string_view text, bool plus) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus) c = ' ';
    if (c == '%') {
      if (text.size() - i < 3) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    out += c;
  }
  if (!is_valid_utf8(out)) return std::nullopt;
  return out;
}

std::optional<Target> parse_target(std::string_view target) {
  Target t;
  if (target == "*") {
    t.path = "*";
    return t;
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() <= scheme.size() || !same_word(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    t.host = target.substr(0, end);
    target.remove_prefix(end);
    if (t.host.empty()) return std::nullopt;
    if (target.empty() || target[0] == '?') t.path = "/";
    break;
  }
  if (t.path.empty() && (target.empty() || target[0] != '/')) return std::nullopt;
  const size_t mark = std::min(target.find('?'), target.size());
  const auto path = percent_decoded(target.substr(0, mark), false);
  if (!path || std::any_of(path->begin(), path->end(), is_control) || path->find('#') != std::string::npos) return std::nullopt;
  t.path = t.path.empty() ? *path : t.path + *path;
  std::string_view query = mark < target.size() ? target.substr(mark + 1) : std::string_view();
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    auto name = percent_decoded(pair.substr(0, equals), true);
    auto value = percent_decoded(equals < pair.size() ? pair.substr(equals + 1) : std::string_view(), true);
    if (!name || !value || name->find('\0') != std::string::npos || value->find('\0') != std::string::npos) return std::nullopt;
    t.query.emplace_back(std::move(*name), std::move(*value));
  }
  return t;
}

}  // namespace vitrine::http
