// Oniguruma's syntax in PCRE2's terms.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <vector>

#include "base/error.h"
#include "tokenizer/regex.h"

namespace vitrine {
namespace {

// Oniguruma's \s is the property White_Space; PCRE2's also takes U+180E. Its \w has marks, connectors and
// letter-like numbers.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e})"
    R"(\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kLatin1Numbers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";  // \w outside of sets only
constexpr std::string_view kHex = "0-9A-Fa-f";

// Oniguruma's POSIX classes where PCRE2's differ: those read from properties of Unicode, with the older characters that newer
// versions of Unicode put into them. "^" in front: the class is everything but the items.
constexpr std::pair<std::string_view, std::string_view> kPosix[] = {
    {"alpha", R"(\p{Alphabetic}\x{363}-\x{36f}\x{c04}\x{f82}\x{f83}\x{1dd3}-\x{1de6}\x{11080}\x{11081})"},
    {"alnum", R"(\p{Alphabetic}\x{363}-\x{36f}\x{c04}\x{f82}\x{f83}\x{1dd3}-\x{1de6}\x{11080}\x{11081}\p{Nd})"},
    {"word", kWord},
    {"punct", R"(\p{P}\p{S})"},
    {"upper", R"(\p{Uppercase})"},
    {"lower", R"(\p{Lowercase}\x{10fc}\x{a7f2}-\x{a7f4}\x{ab69})"},
    {"space", kSpaces},
    {"blank", R"(\p{Zs}\t)"},
    {"graph", R"(^\p{White_Space}\p{Cc}\p{Cn}\p{Cs})"},
    {"print", R"(^\p{Cc}\p{Cn}\p{Cs}\x{2028}\x{2029})"}};

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
        continue;
      }
      if (c == '*' || c == '+' || c == '?') {
        out += in_[pos_++];
        continue;
      }
      if (comment(groups.back().extended)) continue;
      if (c == '(') {
        open(out, groups);
        continue;
      }
      const size_t begin = out.size();
      if (c == '\\') {
        out += escape(false);
      } else if (c == '[') {
        out += set(0);
      } else if (c == ')' && groups.size() > 1) {
        out.append(groups.back().options + 1, ')');
        atom = groups.back().begin;
        groups.pop_back();
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
    throw FileError(where_, fmt::format("{}: the regular expression {} {} at {}", field_, in_, problem, pos_));
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
    pos_ += 2;
    const auto set_of = [&](std::string_view items) { return in_set ? std::string(items) : fmt::format("[{}]", items); };
    switch (c) {
      case 's': return set_of(kSpaces);
      case 'S': return set_of(kNotSpaces);
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
        return fmt::format("\\{}{{{}}}", c, c == 'p' || c == 'P' ? property(name) : name);
      }
      default: {
        std::string out = std::string("\\") + c;
        while (pos_ < in_.size() && (static_cast<unsigned char>(in_[pos_]) & 0xC0) == 0x80) out += in_[pos_++];
        return out;
      }
    }
  }

  static std::string property(const std::string& name) {
    constexpr std::pair<std::string_view, std::string_view> kLong[] = {{"Letter", "L"},      {"Mark", "M"},  {"Number", "N"},
                                                                       {"Punctuation", "P"}, {"Punct", "P"}, {"Symbol", "S"},
                                                                       {"Separator", "Z"},   {"Other", "C"}};
    const bool negated = name.starts_with('^');
    for (const auto& [long_name, short_name] : kLong)
      if (std::string_view(name).substr(negated) == long_name) return std::string(negated ? "^" : "") + std::string(short_name);
    // PCRE2's \p{Han} also has characters that several scripts share; Oniguruma's is the script alone.
    const std::string script = std::string(negated ? "^" : "") + "sc:" + name.substr(negated);
    return name.size() > 2 && compiles("\\p{" + script + "}") ? script : name;
  }

  static bool compiles(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &at, nullptr);
    pcre2_code_free(code);
    return code != nullptr;
  }

  // [:name:] or [:^name:] in a set, as escape() gives its result.
  std::string posix(std::string_view name) {
    bool negated = name.starts_with('^');
    for (const auto& [known, items] : kPosix) {
      if (name.substr(negated) != known) continue;
      negated = negated != items.starts_with('^');
      const std::string_view plain = items.substr(items.starts_with('^'));
      if (!negated) return std::string(plain);
      nested_ = fmt::format("[^{}]", plain);
      return "";
    }
    return fmt::format("[:{}:]", name);
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
        items += c;
        ++pos_;
      }
    }
    if (simple) return (negated ? "[^" : "[") + items + "]";
    const std::string expression = whole + operand();
    return negated ? "(?:(?!" + expression + ")(?s:.))" : "(?:" + expression + ")";
  }

  std::string_view in_;
  const std::string &where_, &field_;
  size_t pos_ = 0;
  std::string nested_;
};

}  // namespace

std::string oniguruma_to_pcre2(std::string_view pattern, const std::string& where, const std::string& field) {
  return Translator(pattern, where, field).run();
}

}  // namespace vitrine
