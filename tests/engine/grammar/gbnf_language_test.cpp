// Random grammars over three letters: after every text of up to four letters, every token may come exactly where some text of the
// language goes on with it, by a recognizer that knows no lexemes.
#include <gtest/gtest.h>

#include "base/error.h"
#include "grammar/gbnf.h"
#include "grammar_support.h"

namespace vitrine {
namespace {

constexpr const char* kLetters = "abc";
constexpr size_t kLongest = 4;  // letters of a text

/// A grammar of its own, as text for the reader and as a tree for the recognizer.
struct Node {
  enum Kind { letters, sequence, choice, repeat, reference } kind = sequence;
  std::string set;  // letters
  std::vector<Node> parts;
  uint32_t least = 0, most = 0;
  size_t rule = 0;
};

class RandomGrammar {
 public:
  explicit RandomGrammar(uint64_t seed) : random_(seed) {
    const size_t n = 1 + random_() % 4;
    for (size_t i = 0; i < n; ++i) rules.push_back(node(3, n));
  }
  std::vector<Node> rules;

  std::string text() const {
    std::string out;
    for (size_t i = 0; i < rules.size(); ++i) out += name(i) + " ::= " + text(rules[i]) + "\n";
    return out;
  }

 private:
  static std::string name(size_t rule) { return rule == 0 ? "root" : "r" + std::to_string(rule); }
  static std::string text(const Node& n) {
    std::string all;
    switch (n.kind) {
      case Node::letters: return "[" + n.set + "]";
      case Node::reference: return name(n.rule);
      case Node::repeat: {
        const std::string most = n.most == GbnfNode::kNoLimit ? "" : std::to_string(n.most);
        return "(" + text(n.parts[0]) + "){" + std::to_string(n.least) + "," + most + "}";
      }
      default:
        for (const Node& part : n.parts) all += (all.empty() ? "" : n.kind == Node::choice ? " | " : " ") + text(part);
        return n.parts.empty() ? "\"\"" : "(" + all + ")";
    }
  }
  Node node(int depth, size_t n) {
    const uint64_t kind = depth == 0 ? random_() % 4 : random_() % 10;
    if (kind < 2) {
      std::string set;
      for (const char* c = kLetters; *c != 0; ++c)
        if (random_() % 2 == 0) set += *c;
      return {.kind = Node::letters, .set = set.empty() ? "a" : set, .parts = {}};
    }
    if (kind < 4) return {.kind = Node::reference, .set = {}, .parts = {}, .rule = random_() % n};
    if (kind < 6) {
      Node r{.kind = Node::repeat, .set = {}, .parts = {node(depth - 1, n)}, .least = static_cast<uint32_t>(random_() % 3)};
      r.most = random_() % 2 == 0 ? GbnfNode::kNoLimit : r.least + 1 + static_cast<uint32_t>(random_() % 2);
      return r;
    }
    Node r{.kind = kind < 8 ? Node::sequence : Node::choice, .set = {}, .parts = {}};
    const size_t count = r.kind == Node::choice ? 2 + random_() % 2 : random_() % 4;
    for (size_t i = 0; i < count; ++i) r.parts.push_back(node(depth - 1, n));
    return r;
  }
  std::mt19937_64 random_;
};

/// Where a node that begins at a place of the text may end, as bits; kBeyond: the text ends within it.
class Recognizer {
 public:
  static constexpr uint32_t kBeyond = 1u << 31;

  explicit Recognizer(const std::vector<Node>& rules) : rules_(rules), lives_(rules.size()) {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < rules.size(); ++i)
        if (!lives_[i] && lives(rules[i])) changed = lives_[i] = true;
    }
  }
  bool has_texts() const { return lives_[0]; }

  /// Whether the text is one of the language, and whether one begins with it.
  std::pair<bool, bool> look(const std::string& text) {
    text_ = text;
    known_.assign(rules_.size(), std::vector<uint32_t>(text.size() + 1));
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t r = 0; r < rules_.size(); ++r)
        for (size_t at = 0; at <= text.size(); ++at) {
          const uint32_t now = ends(rules_[r], at);
          changed = changed || now != known_[r][at];
          known_[r][at] = now;
        }
    }
    const uint32_t found = known_[0][0], whole = 1u << text.size();
    return {(found & whole) != 0, (found & (whole | kBeyond)) != 0};
  }

 private:
  bool lives(const Node& n) const {
    if (n.kind == Node::reference) return lives_[n.rule];
    if (n.kind == Node::repeat) return n.least == 0 || lives(n.parts[0]);
    if (n.kind == Node::choice) return std::ranges::any_of(n.parts, [&](const Node& p) { return lives(p); });
    return std::ranges::all_of(n.parts, [&](const Node& p) { return lives(p); });
  }
  uint32_t each(const Node& n, uint32_t starts) const {
    uint32_t found = 0;
    for (size_t at = 0; at <= text_.size(); ++at)
      if (starts >> at & 1) found |= ends(n, at);
    return found;
  }
  uint32_t ends(const Node& n, size_t at) const {
    if (!lives(n)) return 0;
    switch (n.kind) {
      case Node::letters:
        if (at == text_.size()) return kBeyond;
        return n.set.find(text_[at]) != std::string::npos ? 1u << (at + 1) : 0;
      case Node::reference: return known_[n.rule][at];
      case Node::choice: {
        uint32_t found = 0;
        for (const Node& part : n.parts) found |= ends(part, at);
        return found;
      }
      case Node::sequence: {
        uint32_t now = 1u << at, beyond = 0;
        for (const Node& part : n.parts) {
          now = each(part, now & ~kBeyond);
          beyond |= now & kBeyond;
        }
        return now | beyond;
      }
      case Node::repeat: {
        uint32_t now = 1u << at, found = n.least == 0 ? now : 0, beyond = 0;
        const uint32_t rounds = n.most == GbnfNode::kNoLimit ? n.least + 8 : n.most;
        for (uint32_t i = 1; i <= rounds && lives(n.parts[0]); ++i) {
          now = each(n.parts[0], now & ~kBeyond);
          beyond |= now & kBeyond;
          if (i >= n.least) found |= now;
        }
        return found | beyond;
      }
    }
    return 0;
  }
  const std::vector<Node>& rules_;
  std::vector<bool> lives_;
  std::vector<std::vector<uint32_t>> known_;
  std::string text_;
};

GrammarFixture small_vocabulary() {
  GrammarFixture f;
  f.tokenizer = tokenizer_from_vocabulary({.source = "letters.gguf",
                                           .kind = "gpt2",
                                           .pre = "gpt-2",
                                           .pieces = {"a", "b", "c", "ab", "bc", "ca", "aa", "abc", "cab", "bcab"},
                                           .scores = {},
                                           .types = {},
                                           .merges = {"a b", "b c", "c a", "a a", "ab c", "c ab", "bc ab"},
                                           .bos = {},
                                           .eos = {},
                                           .unknown = {},
                                           .padding = {},
                                           .add_bos = {},
                                           .add_eos = {},
                                           .add_space_prefix = {},
                                           .remove_extra_whitespaces = {}});
  f.compiler = std::make_unique<GrammarCompiler>(*f.tokenizer, f.tokenizer->vocab_size());
  return f;
}

void compare(const GrammarFixture& f, Recognizer& recognizer, Constraint& state, const std::string& text, size_t& compared) {
  const auto [whole, begins] = recognizer.look(text);
  ASSERT_TRUE(begins) << text;
  ASSERT_EQ(state.may_end(), whole) << "behind \"" << text << "\"";
  std::vector<bool> allowed;
  if (state.must_end()) {
    allowed.assign(static_cast<size_t>(f.tokenizer->vocab_size()), false);
  } else {
    const std::span<const uint32_t> mask = state.allowed();
    for (int32_t t = 0; t < f.tokenizer->vocab_size(); ++t) allowed.push_back(is_allowed(mask, t));
  }
  for (int32_t t = 0; t < f.tokenizer->vocab_size(); ++t) {
    const std::string next = text + f.tokenizer->token_bytes(t);
    ASSERT_EQ(allowed[static_cast<size_t>(t)], recognizer.look(next).second) << "\"" << next << "\"";
    ++compared;
  }
  if (text.size() == kLongest) return;
  for (int32_t t = 0; t < 3; ++t) {
    if (!allowed[static_cast<size_t>(t)]) continue;
    const auto next = state.clone();
    next->accept(t);
    compare(f, recognizer, *next, text + kLetters[t], compared);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Gbnf, MasksAreThoseOfTheLanguage) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture f = small_vocabulary();
  size_t compared = 0, empty = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const RandomGrammar grammar(seed);
    Recognizer recognizer(grammar.rules);
    SCOPED_TRACE("seed " + std::to_string(seed) + ":\n" + grammar.text());
    if (!recognizer.has_texts()) {
      ++empty;
      EXPECT_THROW(gbnf_to_lark(grammar.text(), "random"), InputError);
      continue;
    }
    const auto compiled = f.compiler->compile({.kind = GrammarKind::gbnf, .text = grammar.text(), .source = "random"});
    compare(f, recognizer, *compiled->clone(), "", compared);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(compared, 20000u);
  EXPECT_GT(empty, 10u);
  EXPECT_LT(empty, 200u);
}

}  // namespace
}  // namespace vitrine
