// Masks against PCRE2, which tries every token of the vocabulary behind the text so far.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include "base/error.h"
#include "base/utf8.h"
#include "grammar_support.h"

namespace vitrine {
namespace {

// Texts byte by byte: a text may go on as long as some match begins with it.
class BytePattern {
 public:
  explicit BytePattern(const std::string& regex) {
    const std::string pattern = "(?:" + regex + ")\\z";
    int error = 0;
    PCRE2_SIZE at = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.c_str()), pattern.size(), 0, &error, &at, nullptr);
    if (code_ == nullptr) throw InputError("PCRE2 does not take " + pattern);
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    data_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~BytePattern() {
    pcre2_match_data_free(data_);
    pcre2_code_free(code_);
  }
  BytePattern(const BytePattern&) = delete;
  BytePattern& operator=(const BytePattern&) = delete;
  bool matches(const std::string& text) const { return run(text, PCRE2_ANCHORED) >= 0; }
  bool begins(const std::string& text) const {
    return matches(text) || run(text, PCRE2_ANCHORED | PCRE2_PARTIAL_HARD) == PCRE2_ERROR_PARTIAL;
  }

 private:
  int run(const std::string& text, uint32_t options) const {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, options, data_, nullptr);
  }
  pcre2_code* code_;
  pcre2_match_data* data_;
};

// Whether bytes can become UTF-8 by more bytes.
bool begins_utf8(const std::string& text) {
  const size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return true;
  static const std::vector<std::string> kEnds = [] {
    std::vector<std::string> ends;
    for (const char* lead : {"\x80", "\x90", "\xA0", "\x8F", "\x9F", "\xBF"})
      for (const char* rest : {"", "\x80", "\x80\x80"}) ends.push_back(std::string(lead) + rest);
    return ends;
  }();
  return std::ranges::any_of(kEnds, [&](const std::string& end) { return is_valid_utf8(text + end); });
}

class Masks : public ::testing::TestWithParam<std::string> {};

TEST_P(Masks, EqualEveryTokenTried) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture(GetParam());
  // Bytes and characters match them alike.
  const std::vector<std::string> regexes = {
      "[a-z]+ing",   " ?the (cat|catalog|dog)s?", "[0-9]{1,3}(\\.[0-9]{1,3}){3}", "(\"[^\"\\\\]*\" ?,)*", "(ä|ö|ü|é|日本語|🙂)+",
      "a{3,5}|aab*", "\\n{2}[A-Z][a-z ]*\\."};
  size_t compared = 0, allowed_in_all = 0;
  for (const std::string& regex : regexes) {
    const BytePattern pattern(regex);
    const auto grammar = f.compiler->compile({.kind = GrammarKind::regex, .text = regex, .source = "test"});
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const std::unique_ptr<Constraint> text = grammar->clone();
      std::mt19937_64 random(seed);
      std::string so_far;
      for (int step = 0; step < 4 && !text->must_end(); ++step) {
        const std::span<const uint32_t> mask = text->allowed();
        EXPECT_EQ(text->may_end(), pattern.matches(so_far)) << regex << " behind " << so_far;
        std::vector<int32_t> choices;
        for (int32_t t = 0; t < f.tokenizer->vocab_size(); ++t) {
          const std::string bytes = f.tokenizer->token_bytes(t), next = so_far + bytes;
          const bool fits =
              !bytes.empty() && bytes.find('\xFF') == std::string::npos && pattern.begins(next) && begins_utf8(next);
          ASSERT_EQ(is_allowed(mask, t), fits) << regex << ": token " << t << " \"" << bytes << "\" behind \"" << so_far << "\"";
          if (fits) choices.push_back(t);
          ++compared;
        }
        allowed_in_all += choices.size();
        if (choices.empty()) break;
        const int32_t token = choices[random() % choices.size()];
        so_far += f.tokenizer->token_bytes(token);
        text->accept(token);
      }
    }
  }
  EXPECT_GT(compared, 1000u * 50);
  EXPECT_GT(allowed_in_all, 500u);
}

TEST_P(Masks, HaveNoControlTokens) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture(GetParam());
  const auto grammar = f.compiler->compile({.kind = GrammarKind::regex, .text = "(?s:.)*", .source = "test"});
  const auto text = grammar->clone();
  const std::span<const uint32_t> mask = text->allowed();
  size_t allowed = 0;
  for (int32_t t = 0; t < f.tokenizer->vocab_size(); ++t) {
    if (f.tokenizer->is_control(t) || f.tokenizer->token_bytes(t).empty()) {
      EXPECT_FALSE(is_allowed(mask, t)) << f.tokenizer->piece(t);
    }
    allowed += is_allowed(mask, t) ? 1 : 0;
  }
  EXPECT_GT(allowed, static_cast<size_t>(f.tokenizer->vocab_size()) * 9 / 10);
  EXPECT_TRUE(text->may_end());
  EXPECT_FALSE(text->must_end());
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, Masks, ::testing::Values("gpt2", "gemma", "tales9m"),
                         [](const auto& test) { return test.param; });

TEST(GrammarConstraint, ClonesGoTheirOwnWays) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture("gpt2");
  const auto token = [&](const char* text) { return f.tokenizer->encode(text, false)[0]; };
  const auto grammar = f.compiler->compile({.kind = GrammarKind::regex, .text = "ax|by", .source = "test"});
  const auto first = grammar->clone();
  first->prepare();
  first->accept(token("a"));
  first->prepare();
  const auto second = first->clone(), third = grammar->clone();
  first->accept(token("x"));
  EXPECT_TRUE(first->may_end());
  EXPECT_TRUE(first->must_end());
  EXPECT_FALSE(second->may_end());
  EXPECT_TRUE(is_allowed(second->allowed(), token("x")));
  EXPECT_FALSE(is_allowed(second->allowed(), token("y")));
  EXPECT_TRUE(is_allowed(third->allowed(), token("b")));
  EXPECT_FALSE(is_allowed(third->allowed(), token("x")));
}

TEST(GrammarConstraint, RefusesATokenThatDoesNotFit) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture("gpt2");
  const auto text = f.compiler->compile({.kind = GrammarKind::regex, .text = "ab", .source = "--regex"})->clone();
  try {
    text->accept(f.tokenizer->encode("z", false)[0]);
    FAIL();
  } catch (const ConstraintError& e) {
    EXPECT_NE(std::string(e.what()).find("does not conform to the grammar"), std::string::npos) << e.what();
    EXPECT_EQ(e.source, "--regex");
  }
}

TEST(GrammarConstraint, NoGrammarReachesControlTokens) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture("gpt2");
  const int32_t end = *f.tokenizer->find("<|endoftext|>");
  const std::string by_id = "start: <[" + std::to_string(end) + "]>";
  EXPECT_THROW(f.compiler->compile({.kind = GrammarKind::lark, .text = by_id, .source = "--lark"}), InputError);
  EXPECT_THROW(f.compiler->compile({.kind = GrammarKind::lark, .text = "start: <|endoftext|>", .source = "--lark"}), InputError);
  const auto spelled =
      f.compiler->compile({.kind = GrammarKind::regex, .text = "<\\|endoftext\\|>", .source = "--regex"})->clone();
  EXPECT_FALSE(is_allowed(spelled->allowed(), end));
  EXPECT_TRUE(is_allowed(spelled->allowed(), *f.tokenizer->find("<")));
}

TEST(GrammarConstraint, EmptyTextMayEndAtOnce) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture("gpt2");
  const auto text = f.compiler->compile({.kind = GrammarKind::regex, .text = "", .source = "--regex"})->clone();
  EXPECT_TRUE(text->may_end());
  EXPECT_TRUE(std::ranges::all_of(text->allowed(), [](uint32_t word) { return word == 0; }));
}

}  // namespace
}  // namespace vitrine
