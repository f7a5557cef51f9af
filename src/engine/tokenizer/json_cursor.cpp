#include "tokenizer/json_cursor.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/utf8.h"

namespace vitrine {

void JsonCursor::fail(const std::string& problem) const {
  throw FileError(*where_,
                  fmt::format("is not valid JSON at byte {} of {}: {}; is the file complete?", pos_, text_.size(), problem));
}

char JsonCursor::peek() {
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
    ++pos_;
  }
  return '\0';
}

void JsonCursor::expect(char c) {
  if (!take(c)) fail(fmt::format("expected '{}'", c));
}

bool JsonCursor::take(char c) {
  if (peek() != c || pos_ >= text_.size()) return false;
  ++pos_;
  return true;
}

std::string_view JsonCursor::string() {
  expect('"');
  const size_t begin = pos_;
  bool ascii = true;
  for (size_t i = pos_; i < text_.size(); ++i) {
    const auto c = static_cast<unsigned char>(text_[i]);
    if (c == '"') {
      const std::string_view plain = text_.substr(begin, i - begin);
      if (!ascii && !is_valid_utf8(plain)) fail("a string is not UTF-8");
      pos_ = i + 1;
      return plain;
    }
    if (c == '\\') {
      decode_string(i);
      return scratch_;
    }
    if (c < 0x20) break;
    ascii = ascii && c < 0x80;
  }
  fail("a string does not end");
}

void JsonCursor::decode_string(size_t i) {
  scratch_.assign(text_.substr(pos_, i - pos_));
  const auto hex4 = [&](size_t at) {
    uint32_t code = 0;
    for (size_t k = at; k < at + 4; ++k) {
      const char c = k < text_.size() ? text_[k] : '\0';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("\\u is not followed by four hexadecimal digits");
      code = code << 4 | uint32_t(digit);
    }
    return code;
  };
  while (true) {
    if (i >= text_.size() || static_cast<unsigned char>(text_[i]) < 0x20) fail("a string does not end");
    if (text_[i] == '"') break;
    if (text_[i] != '\\') {
      scratch_ += text_[i++];
      continue;
    }
    const char escape = i + 1 < text_.size() ? text_[i + 1] : '\0';
    i += 2;
    switch (escape) {
      case 'n': scratch_ += '\n'; break;
      case 't': scratch_ += '\t'; break;
      case 'r': scratch_ += '\r'; break;
      case 'b': scratch_ += '\b'; break;
      case 'f': scratch_ += '\f'; break;
      case '"':
      case '\\':
      case '/': scratch_ += escape; break;
      case 'u': {
        uint32_t code = hex4(i);
        i += 4;
        if (code >= 0xD800 && code < 0xE000) {
          if (code >= 0xDC00 || text_.substr(i, 2) != "\\u") fail("half of a surrogate pair");
          const uint32_t low = hex4(i + 2);
          if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
          i += 6;
        }
        append_utf8(scratch_, code);
        break;
      }
      default: fail("an unknown escape in a string");
    }
  }
  if (!is_valid_utf8(scratch_)) fail("a string is not UTF-8");
  pos_ = i + 1;
}

int64_t JsonCursor::integer() {
  peek();
  const size_t begin = pos_;
  const bool negative = pos_ < text_.size() && text_[pos_] == '-';
  if (negative) ++pos_;
  int64_t value = 0;
  size_t digits = 0;
  for (; pos_ < text_.size() && text_[pos_] >= '0' && text_[pos_] <= '9'; ++pos_, ++digits) {
    if (digits >= 18) fail("a number too large for an id");
    value = value * 10 + (text_[pos_] - '0');
  }
  if (digits == 0 || (pos_ < text_.size() && (text_[pos_] == '.' || text_[pos_] == 'e' || text_[pos_] == 'E'))) {
    pos_ = begin;
    fail("expected a whole number");
  }
  return negative ? -value : value;
}

double JsonCursor::number() {
  peek();
  double value = 0;
  const char *begin = text_.data() + pos_, *end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc{}) fail("expected a number");
  pos_ += size_t(stop - begin);
  return value;
}

void JsonCursor::skip_string() {
  ++pos_;
  while (true) {
    const size_t stop = text_.find_first_of("\"\\", pos_);
    if (stop == std::string_view::npos) fail("a string does not end");
    pos_ = stop + 1;
    if (text_[stop] == '"') return;
    if (pos_ < text_.size()) ++pos_;  // the character after a backslash
  }
}

void JsonCursor::skip_value() {
  constexpr int kDeepest = 64;
  int depth = 0;
  do {
    const char c = peek();
    if (c == '"') {
      skip_string();
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) fail("nests deeper than 64 levels");
      ++pos_;
    } else if (c == '}' || c == ']') {
      if (--depth < 0) fail("a bracket too many");
      ++pos_;
    } else if (c == ',' || c == ':') {
      if (depth == 0) fail("expected a value");
      ++pos_;
    } else if (c == '\0' && pos_ >= text_.size()) {
      fail("it ends inside a value");
    } else {
      const size_t begin = pos_;
      while (pos_ < text_.size() && std::string_view("+-.0123456789eEtrufalsn").find(text_[pos_]) != std::string_view::npos)
        ++pos_;
      if (pos_ == begin) fail("expected a value");
    }
  } while (depth > 0);
}

}  // namespace vitrine
