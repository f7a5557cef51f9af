#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "jinja/unicode.h"

namespace vitrine::jinja {
namespace {

using std::string_view;

std::string with_plain_newlines(string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(string_view source) {
    if (const size_t bad = first_invalid_byte(source); bad != string_view::npos)
      throw SyntaxProblem{
          1 + static_cast<int>(std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(bad), '\n')),
          "the source is not valid UTF-8 at byte " + std::to_string(bad)};
    source_ = with_plain_newlines(source);
    text_ = source_;
  }

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const size_t tag = next_tag();
      if (tag == text_.size()) {
        data(text_.substr(at_), 0, false);
        at_ = tag;
        break;
      }
      const char kind = text_[tag + 1];
      char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      if (sign != '-' && sign != '+') sign = '\0';
      const string_view before = text_.substr(at_, tag - at_);
      if (kind == '%') {
        if (const auto raw_end = raw_begin(tag)) {
          data(before, sign, true);
          at_ = tag;
          move_to(*raw_end);
          raw();
          continue;
        }
      }
      data(before, sign, kind != '{');
      at_ = tag;
      move_to(tag + (sign ? 3 : 2));
      if (kind == '#')
        comment();
      else
        code(kind == '{');
    }
    tokens_.push_back({TokenKind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string problem) const { throw SyntaxProblem{line_, std::move(problem)}; }

  size_t next_tag() const {
    for (size_t i = text_.find('{', at_); i != string_view::npos && i + 1 < text_.size(); i = text_.find('{', i + 1))
      if (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#') return i;
    return text_.size();
  }

  // Text in front of a tag: a '-' in the tag strips it, and lstrip_blocks strips the blanks between a line's start and a block.
  void data(string_view text, char sign, bool block) {
    const size_t lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    string_view kept = text;
    if (sign == '-') {
      kept = text.substr(0, strip_space(text, false, true).end);
    } else if (sign != '+' && block) {
      const size_t line_begin = text.rfind('\n') + 1;  // 0 if there is none
      const string_view indent = text.substr(line_begin);
      if ((line_begin > 0 || line_starting_) && strip_space(indent, true, false).begin == indent.size())
        kept = text.substr(0, line_begin);
    }
    if (!kept.empty()) tokens_.push_back({TokenKind::data, std::string(kept), line_});
    line_ += static_cast<int>(lines);
  }

  void move_to(size_t to) {
    const string_view passed = text_.substr(at_, to - at_);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    at_ = to;
  }

  size_t skip_space(size_t at) const { return at + strip_space(text_.substr(at), true, false).begin; }

  // Behind a "%}" (or "#}") that begins at `at`, given the sign in front: trim_blocks drops one newline, '-' all white space.
  size_t behind_end(size_t at, char sign) const {
    at += 2;
    if (sign == '-') return skip_space(at);
    return sign != '+' && at < text_.size() && text_[at] == '\n' ? at + 1 : at;
  }

  // The end of "{% raw %}" if there is one at `tag`.
  std::optional<size_t> raw_begin(size_t tag) const {
    size_t i = tag + 2;
    if (i < text_.size() && (text_[i] == '-' || text_[i] == '+')) ++i;
    i = skip_space(i);
    if (text_.substr(i, 3) != "raw") return std::nullopt;
    i = skip_space(i + 3);
    if (text_.substr(i, 3) == "-%}") return skip_space(i + 3);
    if (text_.substr(i, 2) == "%}") return i + 2;
    return std::nullopt;
  }

  void raw() {
    line_starting_ = at_ > 0 && text_[at_ - 1] == '\n';
    for (size_t tag = text_.find("{%", at_); tag != string_view::npos; tag = text_.find("{%", tag + 1)) {
      size_t i = tag + 2;
      char sign = i < text_.size() && (text_[i] == '-' || text_[i] == '+') ? text_[i++] : '\0';
      i = skip_space(i);
      if (text_.substr(i, 6) != "endraw") continue;
      i = skip_space(i + 6);
      const char end_sign = i < text_.size() && (text_[i] == '-' || text_[i] == '+') ? text_[i++] : '\0';
      if (text_.substr(i, 2) != "%}") continue;
      data(text_.substr(at_, tag - at_), sign, true);
      at_ = tag;
      finish_tag(behind_end(i, end_sign));
      return;
    }
    fail("{% raw %} is never closed; expected {% endraw %}");
  }

  void comment() {
    const size_t end = text_.find("#}", at_);
    if (end == string_view::npos) fail("a comment is never closed; expected #}");
    const char sign = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+') ? text_[end - 1] : '\0';
    finish_tag(behind_end(end, sign));
  }

  void finish_tag(size_t to) {
    move_to(to);
    line_starting_ = text_[to - 1] == '\n';
  }

  void code(bool variable) {
    tokens_.push_back({variable ? TokenKind::variable_begin : TokenKind::block_begin, "", line_});
    const int begin_line = line_;
    std::string open;  // brackets that wait for their partner
    const string_view close = variable ? "}}" : "%}";
    while (at_ < text_.size()) {
      if (open.empty()) {
        char sign = text_[at_] == '-' || (text_[at_] == '+' && !variable) ? text_[at_] : '\0';
        const size_t end = at_ + (sign ? 1 : 0);
        if (text_.substr(end, 2) == close) {
          tokens_.push_back({variable ? TokenKind::variable_end : TokenKind::block_end, "", line_});
          finish_tag(variable ? (sign ? skip_space(end + 2) : end + 2) : behind_end(end, sign));
          return;
        }
      }
      token(open);
    }
    line_ = begin_line;
    fail(std::string("the tag is never closed; expected ") +
         (open.empty() ? std::string(close) : std::string("'") + open.back() + "'"));
  }

  void token(std::string& open) {
    if (const size_t after = skip_space(at_); after > at_) return move_to(after);
    const char c = text_[at_];
    if (is_ascii_digit(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    size_t after = at_;
    const char32_t code = next_code_point(text_, after);
    if (is_word(code)) return name();
    constexpr std::array<string_view, 26> kSigns = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const string_view sign : kSigns) {
      if (text_.substr(at_, sign.size()) != sign) continue;
      balance(sign[0], open);
      tokens_.push_back({TokenKind::punctuation, std::string(sign), line_});
      at_ += sign.size();
      return;
    }
    fail("unexpected character '" + std::string(text_.substr(at_, after - at_)) + "'");
  }

  void balance(char c, std::string& open) const {
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (open.empty()) fail(std::string("unexpected '") + c + "'");
    if (open.back() != c) fail(std::string("unexpected '") + c + "'; expected '" + open.back() + "'");
    open.pop_back();
  }

  void name() {
    const size_t begin = at_;
    for (size_t after = at_; at_ < text_.size(); at_ = after)
      if (!is_word(next_code_point(text_, after))) break;
    tokens_.push_back({TokenKind::name, std::string(text_.substr(begin, at_ - begin)), line_});
  }

  // Digits with single underscores between them, from `at`; returns the end.
  template <class IsDigit>
  size_t digits(size_t at, IsDigit is_digit_of) const {
    while (at < text_.size()) {
      if (is_digit_of(text_[at]))
        ++at;
      else if (text_[at] == '_' && at + 1 < text_.size() && is_digit_of(text_[at + 1]))
        at += 2;
      else
        break;
    }
    return at;
  }

  void number() {
    const auto is_char = [&](size_t at, char lower) { return at < text_.size() && (text_[at] | 0x20) == lower; };
    const auto is_digit_at = [&](size_t at) { return at < text_.size() && is_ascii_digit(text_[at]); };
    if (at_ == 0 || text_[at_ - 1] != '.') {  // 1.0 in x.1.0 are two subscripts
      size_t end = digits(at_, is_ascii_digit);
      bool is_float = false;
      if (end < text_.size() && text_[end] == '.' && is_digit_at(end + 1)) {
        end = digits(end + 1, is_ascii_digit);
        is_float = true;
      }
      if (is_char(end, 'e')) {
        const size_t sign = end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? 1 : 0;
        if (is_digit_at(end + 1 + sign)) {
          end = digits(end + 1 + sign, is_ascii_digit);
          is_float = true;
        }
      }
      if (is_float) {
        const std::string plain = without_underscores(end);
        Token token{TokenKind::number, plain, line_};
        const auto [rest, error] = std::from_chars(plain.data(), plain.data() + plain.size(), token.number);
        if (error == std::errc::result_out_of_range)
          token.number =
              plain.find("e-") == plain.npos && plain.find("E-") == plain.npos ? std::numeric_limits<double>::infinity() : 0;
        tokens_.push_back(token);
        at_ = end;
        return;
      }
    }
    int base = 10;
    size_t begin = at_, end = at_;
    if (text_[at_] == '0') {
      const auto try_base = [&](char letter, int of_base, auto is_digit_of) {
        if (!is_char(at_ + 1, letter)) return;
        size_t first = at_ + 2;
        if (first < text_.size() && text_[first] == '_') ++first;
        if (first >= text_.size() || !is_digit_of(text_[first])) return;
        base = of_base;
        begin = at_ + 2;
        end = digits(first, is_digit_of);
      };
      try_base('b', 2, [](char c) { return c == '0' || c == '1'; });
      try_base('o', 8, [](char c) { return c >= '0' && c <= '7'; });
      try_base('x', 16, [](char c) { return is_ascii_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
      if (base == 10) end = digits(at_, [](char c) { return c == '0'; });
    } else {
      end = digits(at_, is_ascii_digit);
    }
    std::string plain;
    for (const char c : text_.substr(begin, end - begin))
      if (c != '_') plain += c;
    Token token{TokenKind::integer, plain, line_};
    if (std::from_chars(plain.data(), plain.data() + plain.size(), token.integer, base).ec != std::errc())
      fail("the number " + plain + " does not fit in 64 bits");
    tokens_.push_back(token);
    at_ = end;
  }

  std::string without_underscores(size_t end) const {
    std::string plain;
    for (const char c : text_.substr(at_, end - at_))
      if (c != '_') plain += c;
    return plain;
  }

  // Python's string escapes. What is no escape stays, backslash included.
  void string(char quote) {
    const int begin_line = line_;
    std::string value;
    size_t i = at_ + 1;
    for (;; ++i) {
      if (i >= text_.size()) {
        line_ = begin_line;
        fail(std::string("a string is never closed; expected ") + quote);
      }
      if (text_[i] == quote) break;
      if (text_[i] != '\\') {
        value += text_[i];
        continue;
      }
      if (++i >= text_.size()) continue;
      i = escape(i, value);
    }
    tokens_.push_back({TokenKind::string, std::move(value), begin_line});
    move_to(i + 1);
  }

  // The escape whose letter is at `i`; returns its last byte.
  size_t escape(size_t i, std::string& value) const {
    switch (text_[i]) {
      case '\n': return i;
      case '\\':
      case '\'':
      case '"': value += text_[i]; return i;
      case 'a': value += '\a'; return i;
      case 'b': value += '\b'; return i;
      case 'f': value += '\f'; return i;
      case 'n': value += '\n'; return i;
      case 'r': value += '\r'; return i;
      case 't': value += '\t'; return i;
      case 'v': value += '\v'; return i;
      case 'x': return hex_escape(i, 2, value);
      case 'u': return hex_escape(i, 4, value);
      case 'U': return hex_escape(i, 8, value);
      case 'N': fail("named characters (\\N{...}) in strings are not supported; write the character itself");
      default: break;
    }
    if (text_[i] >= '0' && text_[i] <= '7') {
      char32_t code = 0;
      size_t end = i;
      for (; end < i + 3 && end < text_.size() && text_[end] >= '0' && text_[end] <= '7'; ++end)
        code = code * 8 + static_cast<char32_t>(text_[end] - '0');
      append_code_point(value, code);
      return end - 1;
    }
    value += '\\';
    value += text_[i];
    return i;
  }

  size_t hex_escape(size_t i, size_t count, std::string& value) const {
    uint32_t code = 0;
    const string_view hex = text_.substr(i + 1, count);
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    if (error != std::errc() || hex.size() < count || end != hex.data() + count)
      fail(std::string("the escape \\") + text_[i] + " needs " + std::to_string(count) + " hexadecimal digits");
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("an escape in a string names no character");
    append_code_point(value, code);
    return i + count;
  }

  std::string source_;
  string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(string_view source) { return Lexer(source).run(); }

}  // namespace vitrine::jinja
