#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "grammar/gbnf.h"
#include "grammar/grammar.h"

namespace vitrine {
namespace {

using Kind = GbnfNode::Kind;

constexpr uint32_t kMostRepetitions = 10000;

class GbnfReader {
 public:
  GbnfReader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  GbnfRules read() {
    space(true);
    while (at_ < text_.size()) rule();
    const std::string wanted = "root";
    if (!rules_.contains(wanted)) throw InputError(source_ + ": has no rule root, with which a GBNF grammar begins");
    for (const auto& [name, line] : referred_)
      if (!rules_.contains(name)) throw InputError(fmt::format("{}, line {}: the rule {} is not defined", source_, line, name));
    return std::move(rules_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw InputError(fmt::format("{}, line {}: {}", source_, line_, why));
  }

  std::string shown() const {  // what stands here, for messages
    if (at_ >= text_.size()) return "the end of the grammar";
    return "\"" + utf8_lossy(text_.substr(at_, utf8_at(text_, at_).size)) + "\"";
  }
  bool is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  static bool in_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }

  // Blanks and comments; line ends too where a rule goes on.
  void space(bool line_ends) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
      } else if (c == '\n') {
        if (!line_ends) return;
        ++line_;
      } else if (c == '\r') {
        if (!line_ends) return;
      } else if (c != ' ' && c != '\t') {
        return;
      }
    }
  }

  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() && in_name(text_[at_])) ++at_;
    if (at_ == begin) refuse("expected the name of a rule, found " + shown());
    return std::string(text_.substr(begin, at_ - begin));
  }

  void rule() {
    const std::string defined = name();
    space(false);
    if (text_.substr(at_, 3) != "::=") refuse("expected ::= behind " + defined + ", found " + shown());
    at_ += 3;
    space(true);
    if (rules_.contains(defined)) refuse("the rule " + defined + " is defined twice");
    GbnfNode node = choice(false);
    rules_.emplace(defined, std::move(node));
    if (is('\r')) ++at_;
    if (at_ < text_.size() && !is('\n')) refuse("expected the end of the rule " + defined + ", found " + shown());
    space(true);
  }

  GbnfNode choice(bool inside) {
    GbnfNode node{.kind = Kind::choice};
    node.parts.push_back(sequence(inside));
    while (is('|')) {
      ++at_;
      space(true);
      node.parts.push_back(sequence(inside));
    }
    return alone(std::move(node));
  }

  // What has one part is that part.
  static GbnfNode alone(GbnfNode node) { return node.parts.size() == 1 ? GbnfNode(std::move(node.parts[0])) : node; }

  GbnfNode sequence(bool inside) {
    GbnfNode node{.kind = Kind::sequence};
    bool repeated = false;  // the last part
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        node.parts.push_back(literal());
      } else if (c == '[') {
        node.parts.push_back({.kind = Kind::chars, .chars = char_class()});
      } else if (c == '.') {
        ++at_;
        node.parts.push_back({.kind = Kind::chars, .chars = CharSet::any()});
      } else if (c == '(') {
        if (++open_ > kMostOpenBrackets) refuse(fmt::format("has more than {} open brackets at once", kMostOpenBrackets));
        ++at_;
        space(true);
        node.parts.push_back(choice(true));
        if (!is(')')) refuse("expected ), found " + shown());
        ++at_;
        --open_;
      } else if (in_name(c)) {
        node.parts.push_back({.kind = Kind::reference, .rule = name()});
        referred_.try_emplace(node.parts.back().rule, line_);
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (node.parts.empty()) refuse(fmt::format("there is nothing before {} that could be repeated", c));
        if (repeated) refuse("a repetition is repeated; put brackets around it");
        repeat(node.parts.back());
      } else if (c == '<' || c == '!') {
        refuse("tokens (<name>, <[id]>) are not supported; write the text that they stand for");
      } else {
        break;
      }
      repeated = c == '*' || c == '+' || c == '?' || c == '{';
      space(inside);
    }
    return alone(std::move(node));
  }

  GbnfNode literal() {
    GbnfNode node{.kind = Kind::sequence};
    ++at_;
    while (!is('"')) {
      if (at_ >= text_.size()) refuse("a string has no end");
      const uint32_t code = character();
      node.parts.push_back({.kind = Kind::chars, .chars = CharSet({{code, code}})});
    }
    ++at_;
    return alone(std::move(node));
  }

  CharSet char_class() {
    ++at_;
    const bool others = is('^');
    if (others) ++at_;
    std::vector<CharRange> ranges;
    while (!is(']')) {
      if (at_ >= text_.size()) refuse("a character class has no end");
      CharRange range{.first = character(), .last = 0};
      range.last = range.first;
      if (is('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        range.last = character();
        if (range.last < range.first) refuse("a range of characters ends before it begins");
      }
      ranges.push_back(range);
    }
    ++at_;
    const CharSet set(std::move(ranges));
    return others ? set.complement() : set;
  }

  uint32_t character() {
    if (is('\\')) return escape();
    const Utf8Char c = utf8_at(text_, at_);
    if (c.code == '\n') ++line_;
    at_ += c.size;
    return c.code;
  }

  uint32_t escape() {
    ++at_;
    if (at_ >= text_.size()) refuse("the grammar ends within an escape");
    const char c = text_[at_++];
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case '\\':
      case '"':
      case '[':
      case ']': return static_cast<unsigned char>(c);
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      default: --at_; refuse("the escape \\ with " + shown() + R"( is none of \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH)");
    }
  }

  uint32_t hex(size_t digits) {
    uint32_t code = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) refuse(fmt::format("expected {} hexadecimal digits, found {}", digits, shown()));
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) refuse(fmt::format("U+{:X} is no character", code));
    return code;
  }

  void repeat(GbnfNode& last) {
    uint32_t least = 0, most = GbnfNode::kNoLimit;
    const char c = text_[at_++];
    if (c == '+') least = 1;
    if (c == '?') most = 1;
    if (c == '{') {
      space(false);
      least = most = count();
      space(false);
      if (is(',')) {
        ++at_;
        space(false);
        most = is('}') ? GbnfNode::kNoLimit : count();
        space(false);
      }
      if (!is('}')) refuse("expected }, found " + shown());
      ++at_;
      if (most < least) refuse(fmt::format("{{{},{}}} asks for more than it allows", least, most));
    }
    GbnfNode whole{.kind = Kind::repeat, .least = least, .most = most};
    whole.parts.push_back(std::move(last));
    last = std::move(whole);
  }

  uint32_t count() {
    uint32_t value = 0;
    const size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + static_cast<uint32_t>(text_[at_] - '0');
      if (value > kMostRepetitions) refuse(fmt::format("repeats more than {} times", kMostRepetitions));
    }
    if (at_ == begin) refuse("expected a number, found " + shown());
    return value;
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0, line_ = 1, open_ = 0;
  GbnfRules rules_;
  std::map<std::string, size_t> referred_;  // and the line
};

}  // namespace

GbnfRules read_gbnf(std::string_view text, const std::string& source) { return GbnfReader(text, source).read(); }

}  // namespace vitrine
