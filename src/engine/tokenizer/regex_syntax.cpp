// Oniguruma's syntax in PCRE2's terms.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/regex.h"
#include "tokenizer/regex_tables.h"

namespace vitrine {
namespace {

// Oniguruma's \s is the property White_Space; PCRE2's also takes U+180E.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e})"
    R"(\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kLatin1Numbers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";  // \w outside of sets only
constexpr std::string_view kHex = "0-9A-Fa-f";

// The items of [:name:], where they are known here.
constexpr std::string_view posix_items(std::string_view name) {
  if (name == "space") return kSpaces;
  for (const auto& [known, items] : kPosixClasses)
    if (known == name) return items;
  return "";
}
constexpr std::string_view kWord = posix_items("word");

// Whether PCRE2's tables are newer than Oniguruma's, which are those of Unicode 16.
bool newer_tables() {
  static const bool newer = [] {
    char version[32] = "";
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    return std::atoi(version) > 16;
  }();
  return newer;
}

// What a property or class takes: the items of a set, but for those of another.
struct Members {
  std::string items, without;
};

bool compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &at, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

Members property_members(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kLong[] = {{"letter", "L"},
                                                                     {"casedletter", "LC"},
                                                                     {"uppercaseletter", "Lu"},
                                                                     {"lowercaseletter", "Ll"},
                                                                     {"titlecaseletter", "Lt"},
                                                                     {"modifierletter", "Lm"},
                                                                     {"otherletter", "Lo"},
                                                                     {"mark", "M"},
                                                                     {"combiningmark", "M"},
                                                                     {"nonspacingmark", "Mn"},
                                                                     {"spacingmark", "Mc"},
                                                                     {"enclosingmark", "Me"},
                                                                     {"number", "N"},
                                                                     {"decimalnumber", "Nd"},
                                                                     {"letternumber", "Nl"},
                                                                     {"othernumber", "No"},
                                                                     {"punctuation", "P"},
                                                                     {"punct", "P"},
                                                                     {"connectorpunctuation", "Pc"},
                                                                     {"dashpunctuation", "Pd"},
                                                                     {"openpunctuation", "Ps"},
                                                                     {"closepunctuation", "Pe"},
                                                                     {"initialpunctuation", "Pi"},
                                                                     {"finalpunctuation", "Pf"},
                                                                     {"otherpunctuation", "Po"},
                                                                     {"symbol", "S"},
                                                                     {"mathsymbol", "Sm"},
                                                                     {"currencysymbol", "Sc"},
                                                                     {"modifiersymbol", "Sk"},
                                                                     {"othersymbol", "So"},
                                                                     {"separator", "Z"},
                                                                     {"spaceseparator", "Zs"},
                                                                     {"lineseparator", "Zl"},
                                                                     {"paragraphseparator", "Zp"},
                                                                     {"other", "C"},
                                                                     {"control", "Cc"},
                                                                     {"format", "Cf"},
                                                                     {"privateuse", "Co"},
                                                                     {"unassigned", "Cn"}};
  const auto loosely = [](std::string_view text) {
    std::string out;
    for (const char c : text)
      if (c != '_' && c != ' ' && c != '-') out += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
    return out;
  };
  std::string plain = loosely(name), known(name);
  for (const auto& [long_name, category] : kLong)
    if (plain == long_name) plain = loosely(category), known = category;
  Members out;
  const auto* change = std::find_if(std::begin(kPropertyChanges), std::end(kPropertyChanges),
                                    [&](const PropertyChange& c) { return c.name == plain; });
  if (change != std::end(kPropertyChanges)) {
    out = {std::string(change->base) + std::string(change->added), std::string(change->removed)};
  } else if (const std::string_view items = posix_items(plain); !items.empty() && plain != "punct") {
    out.items = items;
  } else {
    // PCRE2's \p{Han} also has characters that several scripts share; Oniguruma's is the script alone.
    const std::string script = "\\p{sc:" + known + "}";
    out.items = compiles(script) ? script : "\\p{" + known + "}";
  }
  if (newer_tables() && (plain == "c" || plain == "cn")) out.items += kAssignedLater;
  if (newer_tables() && plain != "c" && plain != "cn" && plain != "any") out.without += kAssignedLater;
  return out;
}

class Translator {
 public:
  Translator(std::string_view in, const std::string& where, const std::string& field) : in_(in), where_(where), field_(field) {}

  std::string run() {
    std::vector<Group> groups(1);  // the pattern itself, and what is open in it
    size_t atom = 0;               // where the last thing that can be repeated begins in out
    std::string out;
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == '{') {
        quantifier(out, atom);
        one_character_ = false;
        continue;
      }
      if (c == '*' || c == '+' || c == '?') {
        out += in_[pos_++];
        // Where nothing follows that could fail, what has been taken is never given back: it need not be remembered.
        const bool last = pos_ == in_.size() || in_[pos_] == '|';
        if (last && c != '?' && groups.size() == 1 && groups.front().options == 0 && one_character_) out += '+';
        one_character_ = false;
        continue;
      }
      if (comment(groups.back().extended)) continue;
      if (c == '(') {
        open(out, groups);
        continue;
      }
      const size_t begin = out.size();
      one_character_ = c == '[' || in_.substr(pos_).starts_with("\\p{");
      if (c == '\\') {
        out += escape(false);
      } else if (c == '[') {
        out += set(0);
      } else if (c == ')' && groups.size() > 1) {
        out.append(groups.back().options + 1, ')');
        atom = groups.back().begin;
        groups.pop_back();
        one_character_ = false;
        ++pos_;
        continue;
      } else {
        out += c;
        ++pos_;
        while (pos_ < in_.size() && (static_cast<unsigned char>(in_[pos_]) & 0xC0) == 0x80) out += in_[pos_++];
      }
      atom = begin;
    }
    return out.append(groups.front().options, ')');
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw FileError(where_, fmt::format("{}: the regular expression {} {} at {}", field_, shown_regex(in_), problem, pos_));
  }

  struct Group {
    size_t begin = 0, content = 0;  // in out: its parenthesis, and where its first branch begins
    size_t options = 0;             // groups opened in it for options that hold up to its end
    bool extended = false;          // x: white space and comments do not count
  };

  // Passes over (?#…), and over #… where `extended`: what stands there is no part of the expression.
  bool comment(bool extended) {
    const bool line = extended && in_[pos_] == '#';
    if (!line && !in_.substr(pos_).starts_with("(?#")) return false;
    while (pos_ < in_.size() && in_[pos_] != (line ? '\n' : ')')) pos_ += !line && in_[pos_] == '\\' ? 2 : 1;
    if (pos_ >= in_.size() && !line) fail("has (?# without its )");
    pos_ = std::min(pos_ + 1, in_.size());
    return true;
  }

  // At '('. In Ruby's syntax m stands for PCRE2's s (^ and $ are for lines anyway), and options in parentheses of their own take
  // all that follows in the group, with its branches: a(?i)b|c is a(?i:b|c).
  void open(std::string& out, std::vector<Group>& groups) {
    const size_t begin = out.size(), after = in_.find_first_not_of("imsx-", pos_ + 2);
    bool extended = groups.back().extended;
    const bool sets = in_.substr(pos_).starts_with("(?") && after != std::string_view::npos && after > pos_ + 2 &&
                      (in_[after] == ')' || in_[after] == ':');
    if (!sets) {
      out += in_[pos_++];
      if (pos_ < in_.size() && in_[pos_] == '?') out += in_[pos_++];  // not a repetition
      groups.push_back({begin, out.size(), 0, extended});
      return;
    }
    out += "(?";
    bool on = true;
    for (const char option : in_.substr(pos_ + 2, after - pos_ - 2)) {
      if (option == '-') on = false;
      if (option == 'x') extended = on;
      out += option == 'm' ? 's' : option;
    }
    pos_ = after + 1;
    Group& around = groups.back();
    if (in_[after] == ':') {
      out += ':';
      groups.push_back({begin, out.size(), 0, extended});
      return;
    }
    around.extended = extended;
    if (begin == around.content) {  // there PCRE2's options reach into the other branches as well
      out += ')';
      around.content = out.size();
    } else {
      out += ':';
      ++around.options;
    }
  }

  // At '{'. {,n} counts from 0; {n}? is an optional {n}; {n,m}+ repeats the repetition (in PCRE2 it would be possessive).
  void quantifier(std::string& out, size_t atom) {
    const size_t close = in_.find('}', pos_);
    std::string inside(close == std::string_view::npos ? std::string_view{} : in_.substr(pos_ + 1, close - pos_ - 1));
    const bool counts = !inside.empty() && inside != "," && inside.find_first_not_of("0123456789,") == std::string::npos;
    if (!counts) {
      out += "\\{";
      ++pos_;
      return;
    }
    if (inside[0] == ',') inside.insert(0, "0");
    out += "{" + inside + "}";
    pos_ = close + 1;
    if (pos_ < in_.size() && in_[pos_] == '+') {
      out.insert(atom, "(?:");
      out += ")+";
      ++pos_;
    } else if (pos_ < in_.size() && in_[pos_] == '?' && inside.find(',') == std::string::npos) {
      out.insert(atom, "(?:");
      out += ")?";
      ++pos_;
    }
  }

  // At '\\'. In a set the result is without brackets, or "" for one that needs a set of its own (kept in nested_).
  std::string escape(bool in_set) {
    if (pos_ + 1 >= in_.size()) fail("ends in a backslash");
    const char c = in_[pos_ + 1];
    if (size_t size = 0; raw_byte(pos_, size) != 0) return raw_character(in_set);
    pos_ += 2;
    const auto set_of = [&](std::string_view items) { return in_set ? std::string(items) : fmt::format("[{}]", items); };
    switch (c) {
      case 's': return set_of(kSpaces);
      case 'S': return set_of(kNotSpaces);
      case 'd':
      case 'D': return class_of(property_members("Nd"), c == 'D', in_set);
      case 'w': return in_set ? std::string(kWord) : fmt::format("[{}{}]", kWord, kLatin1Numbers);
      case 'h': return set_of(kHex);
      case 'v': return "\\x{b}";
      case 'E':  // no quoting, and no class: the letters
      case 'Q':
      case 'V': return {c};
      case 'W':
      case 'H': {
        std::string negated = fmt::format("[^{}{}]", c == 'W' ? kWord : kHex, c == 'W' && !in_set ? kLatin1Numbers : "");
        if (!in_set) return negated;
        nested_ = negated;
        return "";
      }
      case 'b':
      case 'B': {
        if (in_set) return std::string("\\") + c;  // there \b is a backspace
        const std::string word = fmt::format("[{}{}]", kWord, kLatin1Numbers);
        return c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                        : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
      }
      case 'u': {
        const std::string_view digits = in_.substr(std::min(pos_, in_.size()), 4);
        if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
          fail("has \\u without four hexadecimal digits");
        pos_ += 4;
        return fmt::format("\\x{{{}}}", digits);
      }
      case 'p':
      case 'P':
      case 'x':
      case 'k':
      case 'g': {
        const char next = pos_ < in_.size() ? in_[pos_] : '\0';
        if (c == 'g' ? next != '<' && next != '\'' : (c == 'p' || c == 'P') && next != '{') return {c};  // but a letter
        const size_t close = next == '{' ? in_.find('}', pos_) : std::string_view::npos;
        if (close == std::string_view::npos) return std::string("\\") + c;
        const std::string name(in_.substr(pos_ + 1, close - pos_ - 1));
        pos_ = close + 1;
        if (c != 'p' && c != 'P') return fmt::format("\\{}{{{}}}", c, name);
        const bool negated = name.starts_with('^');
        return class_of(property_members(std::string_view(name).substr(negated)), negated != (c == 'P'), in_set);
      }
      default: {
        std::string out = std::string("\\") + c;
        while (pos_ < in_.size() && (static_cast<unsigned char>(in_[pos_]) & 0xC0) == 0x80) out += in_[pos_++];
        return out;
      }
    }
  }

  // The expression for what `members` take, or for everything else, as escape() gives its result.
  std::string class_of(const Members& members, bool negated, bool in_set) {
    std::string out;
    if (members.without.empty()) {
      if (in_set && !negated) return members.items;
      out = fmt::format("[{}{}]", negated ? "^" : "", members.items);
    } else {
      out = negated ? fmt::format("(?:[{}]|[^{}])", members.without, members.items)
                    : fmt::format("(?:(?![{}])[{}])", members.without, members.items);
    }
    if (!in_set) return out;
    nested_ = out;
    return "";
  }

  // [:name:] or [:^name:] in a set, as escape() gives its result.
  std::string posix(std::string_view name) {
    const bool negated = name.starts_with('^');
    Members members{std::string(posix_items(name.substr(negated))), ""};
    if (members.items.empty()) return fmt::format("[:{}:]", name);
    if (newer_tables()) members.without = kAssignedLater;
    return class_of(members, negated, true);
  }

  // At a byte from 0x80 that is written \xHH or as three octal digits; 0: there is none.
  unsigned raw_byte(size_t at, size_t& size) const {
    const auto digits = [&](size_t from, size_t count, std::string_view allowed) {
      return from + count <= in_.size() && in_.substr(from, count).find_first_not_of(allowed) == std::string_view::npos;
    };
    size = 4;
    unsigned value = 0;
    if (in_.substr(at, 2) == "\\x" && digits(at + 2, 2, "0123456789abcdefABCDEF"))
      value = unsigned(std::strtoul(std::string(in_.substr(at + 2, 2)).c_str(), nullptr, 16));
    else if (in_.substr(at, 1) == "\\" && digits(at + 1, 3, "01234567") && (in_[at + 1] == '2' || in_[at + 1] == '3'))
      value = unsigned(std::strtoul(std::string(in_.substr(at + 1, 3)).c_str(), nullptr, 8));
    return value >= 0x80 ? value : 0;
  }

  // At such a byte: it and those after it are one character in UTF-8. Alone they are only allowed as the ends of ranges in a set,
  // where they take no character.
  std::string raw_character(bool in_set) {
    std::string bytes;
    size_t size = 0, end = pos_;
    for (unsigned byte = raw_byte(end, size); byte != 0 && bytes.size() < 4; byte = raw_byte(end, size)) {
      bytes += char(byte);
      end += size;
      if (const Utf8Char c = utf8_at(bytes, 0); c.valid && c.size == bytes.size()) {
        pos_ = end;
        return fmt::format("\\x{{{:x}}}", c.code);
      }
    }
    raw_byte(pos_, size);
    const size_t after = pos_ + size;
    size_t last = 0;
    if (in_set && in_.substr(after, 1) == "-" && raw_byte(after + 1, last) != 0) {
      pos_ = after + 1 + last;
      return "";
    }
    if (!in_set || in_[pos_ - 1] != '-') fail("has bytes that are no character in UTF-8");
    pos_ = after;
    return "\\x{7f}";
  }

  // At '['. Returns an expression for one character. Sets inside sets and && become alternatives and lookaheads.
  std::string set(int depth) {
    if (depth > 16) fail("nests sets deeper than 16");
    ++pos_;
    const bool negated = pos_ < in_.size() && in_[pos_] == '^';
    if (negated) ++pos_;
    std::string items, whole;        // plain items; "": no operand before a && yet
    std::vector<std::string> inner;  // expressions of nested sets
    const auto operand = [&] {
      if (items.empty() && inner.empty()) return std::string("(?!)");
      std::string out = items.empty() && !inner.empty() ? "" : "[" + items + "]";
      for (const std::string& e : inner) out += (out.empty() ? "" : "|") + e;
      return inner.empty() ? out : "(?:" + out + ")";
    };
    bool simple = true;
    for (bool first = true;; first = false) {
      if (pos_ >= in_.size()) fail("has a set without its ]");
      const char c = in_[pos_];
      if (c == ']' && !first) {
        ++pos_;
        break;
      }
      if (c == ']') {
        items += "\\]";
        ++pos_;
      } else if (c == '[' && in_.substr(pos_).starts_with("[:")) {
        const size_t close = in_.find(":]", pos_);
        if (close == std::string_view::npos) fail("has [: without :]");
        items += posix(in_.substr(pos_ + 2, close - pos_ - 2));
        pos_ = close + 2;
        if (!nested_.empty()) {
          inner.push_back(nested_);
          nested_.clear();
          simple = false;
        }
      } else if (c == '[') {
        inner.push_back(set(depth + 1));
        simple = false;
      } else if (in_.substr(pos_).starts_with("&&")) {
        pos_ += 2;
        whole += "(?=" + operand() + ")";
        items.clear();
        inner.clear();
        simple = false;
      } else if (c == '\\') {
        items += escape(true);
        if (!nested_.empty()) {
          inner.push_back(nested_);
          nested_.clear();
          simple = false;
        }
      } else {
        if (c == '^') items += '\\';  // but a character, wherever it stands
        items += c;
        ++pos_;
      }
    }
    if (simple && items.empty()) return negated ? "(?s:.)" : "(?!)";
    if (simple) return (negated ? "[^" : "[") + items + "]";
    const std::string expression = whole + operand();
    return negated ? "(?:(?!" + expression + ")(?s:.))" : "(?:" + expression + ")";
  }

  std::string_view in_;
  const std::string &where_, &field_;
  size_t pos_ = 0;
  bool one_character_ = false;  // what was read last is a set or a property
  std::string nested_;
};

}  // namespace

std::string shown_regex(std::string_view pattern) {
  constexpr size_t kShown = 200;
  if (pattern.size() <= 2 * kShown) return std::string(pattern);
  size_t end = kShown;
  while ((static_cast<unsigned char>(pattern[end]) & 0xC0) == 0x80) --end;
  return fmt::format("{}… (of {} bytes)", pattern.substr(0, end), pattern.size());
}

std::string oniguruma_to_pcre2(std::string_view pattern, const std::string& where, const std::string& field) {
  return Translator(pattern, where, field).run();
}

}  // namespace vitrine
