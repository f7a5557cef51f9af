// GBNF: what the reader takes and refuses, and texts of grammars as llama.cpp's users write them.
#include "grammar/gbnf.h"

#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "base/json.h"
#include "grammar_support.h"

namespace vitrine {
namespace {

constexpr const char* kArithmetic = R"GBNF(# sums of terms, one a line
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)GBNF";

constexpr const char* kJsonGrammar = R"GBNF(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws (
             value
             ("," ws value)*
           )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
)GBNF";

std::string refusal(const std::string& text) {
  try {
    gbnf_to_lark(text, "a.gbnf");
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

// Whether single characters, each a token, make up a whole text of the grammar.
bool takes(const GrammarFixture& f, const Constraint& grammar, const std::string& text) {
  const auto state = grammar.clone();
  for (const int32_t token : f.tokenizer->encode(text, false)) {
    if (state->must_end() || !is_allowed(state->allowed(), token)) return false;
    state->accept(token);
  }
  return state->may_end();
}

TEST(Gbnf, ReadsEveryForm) {
  const GbnfRules rules = read_gbnf(
      "root ::= \"a\\n\\x41\\u00e9\\U0001F642\" [^a-z\\]-] . name-2? | (x | \"\")+ x{2} x{1,} x{0,3} # end\n"
      "name-2 ::=\n  [\\\"é-ü]\r\nx ::= \"y\"",
      "test");
  ASSERT_EQ(rules.size(), 3u);
  const GbnfNode& root = rules.at("root");
  ASSERT_EQ(root.kind, GbnfNode::Kind::choice);
  ASSERT_EQ(root.parts[0].parts.size(), 4u);
  const GbnfNode& literal = root.parts[0].parts[0];
  ASSERT_EQ(literal.parts.size(), 5u);
  EXPECT_EQ(literal.parts[1].chars.regex(), "\\x{A}");
  EXPECT_EQ(literal.parts[2].chars.regex(), "A");
  EXPECT_EQ(literal.parts[3].chars.regex(), "\\x{E9}");
  EXPECT_EQ(literal.parts[4].chars.regex(), "\\x{1F642}");
  EXPECT_EQ(root.parts[0].parts[1].chars.regex(),
            "[\\x{0}-\\x{2C}\\x{2E}-\\x{5C}\\x{5E}-\\x{60}\\x{7B}-\\x{D7FF}\\x{E000}-\\x{10FFFF}]");
  EXPECT_EQ(root.parts[0].parts[2].chars, CharSet::any());
  EXPECT_EQ(root.parts[0].parts[3].most, 1u);
  const std::vector<GbnfNode>& second = root.parts[1].parts;
  EXPECT_EQ(second[0].least, 1u);
  EXPECT_EQ(second[1].least, 2u);
  EXPECT_EQ(second[1].most, 2u);
  EXPECT_EQ(second[2].most, GbnfNode::kNoLimit);
  EXPECT_EQ(second[3].most, 3u);
  EXPECT_EQ(rules.at("name-2").chars.regex(), "[\\x{22}\\x{E9}-\\x{FC}]");
}

TEST(Gbnf, RefusesWithTheLine) {
  EXPECT_EQ(refusal("root := \"a\""), "a.gbnf, line 1: expected ::= behind root, found \":\"");
  EXPECT_EQ(refusal("root ::= \"a\"\nroot ::= \"b\""), "a.gbnf, line 2: the rule root is defined twice");
  EXPECT_EQ(refusal("\n\nroot ::= b c\nb ::= \"\""), "a.gbnf, line 3: the rule c is not defined");
  EXPECT_EQ(refusal("a ::= \"a\""), "a.gbnf: has no rule root, with which a GBNF grammar begins");
  EXPECT_EQ(refusal(""), "a.gbnf: has no rule root, with which a GBNF grammar begins");
  EXPECT_EQ(refusal("root ::= \"a"), "a.gbnf, line 1: a string has no end");
  EXPECT_EQ(refusal("root ::= [a"), "a.gbnf, line 1: a character class has no end");
  EXPECT_EQ(refusal("root ::= [z-a]"), "a.gbnf, line 1: a range of characters ends before it begins");
  EXPECT_EQ(refusal("root ::= (\"a\""), "a.gbnf, line 1: expected ), found the end of the grammar");
  EXPECT_EQ(refusal("root ::= \"a\" )"), "a.gbnf, line 1: expected the end of the rule root, found \")\"");
  EXPECT_EQ(refusal("root ::= * \"a\""), "a.gbnf, line 1: there is nothing before * that could be repeated");
  EXPECT_EQ(refusal("root ::= \"a\"{3,2}"), "a.gbnf, line 1: {3,2} asks for more than it allows");
  EXPECT_EQ(refusal("root ::= \"a\"{99999}"), "a.gbnf, line 1: repeats more than 10000 times");
  EXPECT_EQ(refusal("root ::= \"a\"*+"), "a.gbnf, line 1: a repetition is repeated; put brackets around it");
  EXPECT_EQ(refusal("root ::= \"\\q\""),
            "a.gbnf, line 1: the escape \\ with \"q\" is none of \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH");
  EXPECT_EQ(refusal("root ::= \"\\ud800\""), "a.gbnf, line 1: U+D800 is no character");
  EXPECT_EQ(refusal("root ::= <think> \"a\""),
            "a.gbnf, line 1: tokens (<name>, <[id]>) are not supported; write the text that they stand for");
  EXPECT_EQ(refusal("root ::= \"a\" root"), "a.gbnf: the rule root matches no text: each of its alternatives needs another");
  EXPECT_EQ(refusal("root ::= " + std::string(70, '(') + "\"a\"" + std::string(70, ')')),
            "a.gbnf, line 1: has more than 64 open brackets at once");
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 500; ++i) chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  EXPECT_NE(refusal(chain + "r500 ::= \"a\"\n").find("lie too deep in each other"), std::string::npos) << refusal(chain);
}

TEST(Gbnf, TextsOfAJsonGrammarAreJson) {
  SKIP_WITHOUT_GRAMMARS();
  for (const char* name : {"gpt2", "tales9m"}) {
    const GrammarFixture& f = fixture(name);
    const auto grammar = f.compiler->compile({.kind = GrammarKind::gbnf, .text = kJsonGrammar, .source = "json.gbnf"});
    EXPECT_TRUE(takes(f, *grammar, "{\"a\": [1, -2.5e+3, {}, []], \"b\":\n  {\"c\": null}}"));
    EXPECT_FALSE(takes(f, *grammar, "{\"a\": [1 2]}"));
    EXPECT_FALSE(takes(f, *grammar, "[1]"));
    size_t complete = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Written written = write_randomly(f, *grammar, seed, 100);
      if (!written.complete) continue;
      ++complete;
      EXPECT_TRUE(is_json(written.text)) << written.text;
    }
    EXPECT_GT(complete, 10u);
  }
}

// A number here ends in spaces and line ends of its own, and a line end follows it: no lexer that takes the longest lexeme can
// end.
TEST(Gbnf, PartsWhoseEndIsOpenStayWhole) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture("gpt2");
  const auto grammar = f.compiler->compile({.kind = GrammarKind::gbnf, .text = kArithmetic, .source = "arithmetic.gbnf"});
  EXPECT_TRUE(takes(f, *grammar, "a+b = 3\n"));
  EXPECT_TRUE(takes(f, *grammar, "a +(b*12) = c\n\n \nx=y\n"));
  EXPECT_FALSE(takes(f, *grammar, "a+b = 3"));
  EXPECT_FALSE(takes(f, *grammar, "a+ = 3\n"));
}

TEST(Gbnf, LanguageOfBothEndsMatched) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture("gpt2");
  const auto grammar = f.compiler->compile(
      {.kind = GrammarKind::gbnf, .text = "root ::= \"(\" root \")\" root | [a-z]* \"z\" root | \"\"", .source = "t"});
  EXPECT_TRUE(takes(f, *grammar, "(abcz)()z"));
  EXPECT_TRUE(takes(f, *grammar, "zzz"));
  EXPECT_TRUE(takes(f, *grammar, ""));
  EXPECT_FALSE(takes(f, *grammar, "(abc)"));
}

}  // namespace
}  // namespace vitrine
