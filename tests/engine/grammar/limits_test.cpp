// Grammars made to cost time or memory: each is refused, or fails its own text, within bounds.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/error.h"
#include "grammar_support.h"

namespace vitrine {
namespace {

struct Bomb {
  std::string name;
  GrammarKind kind;
  std::string text;
};

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::vector<Bomb> bombs() {
  std::vector<Bomb> all = {
      {"counted", GrammarKind::regex, "((a{1,1000}){1,1000}){1,1000}"},
      {"huge_count", GrammarKind::regex, "[a-z]{1,1000000000}x"},
      {"states", GrammarKind::regex, "(a|b)*a(a|b){200}c"},
      {"unicode", GrammarKind::regex, "\\w{1,1000}\\d{1,1000}\\p{L}{1000}"},
      {"open_brackets", GrammarKind::regex, repeated("(", 100000) + repeated(")", 100000)},
      {"many_words", GrammarKind::regex, "a" + repeated("|[a-z]*x[a-z]*y", 3000)},
      {"long", GrammarKind::regex, repeated("a", (1 << 20) + 1)},
      {"optional_parts", GrammarKind::regex, repeated("a?", 40000)},
      {"optional_choices", GrammarKind::regex, repeated("(aa|bb|cc|dd|ee|)", 40000)},
      {"optional_gbnf", GrammarKind::gbnf, "root ::= " + repeated("\"a\"? ", 40000)},
      {"optional_rules", GrammarKind::gbnf,
       "root ::= " + repeated("a ", 400) + "\na ::= " + repeated("b ", 100) + "\nb ::= \"a\" | \"\""},
      {"optional_pattern", GrammarKind::json_schema, R"({"type": "string", "pattern": "^)" + repeated("a*", 40000) + "$\"}"},
      {"optional_names", GrammarKind::json_schema,
       R"({"patternProperties": {"^)" + repeated("a?", 40000) + R"($": {"type": "string"}}})"},
      {"deep_lark", GrammarKind::lark, "start: " + repeated("(", 5000) + "\"a\"" + repeated(")", 5000)},
      {"optional_lark", GrammarKind::lark, "start: A\nA: /" + repeated("a?", 40000) + "/"},
      {"counted_lark", GrammarKind::lark, "start: ((A{1,1000}){1,1000}){1,1000}\nA: \"a\""},
      {"ambiguous_lark", GrammarKind::lark, "start: start start | A\nA: \"a\""},
      {"counted_gbnf", GrammarKind::gbnf, "root ::= (([a-z]{1,1000}){1,1000}){1,1000}"},
      {"ambiguous_gbnf", GrammarKind::gbnf, "root ::= root root root | [a-z] | [a-y]* | \"\""},
      {"deep_schema", GrammarKind::json_schema, repeated("{\"items\":", 5000) + "{}" + repeated("}", 5000)},
      {"reference_to_itself", GrammarKind::json_schema, R"({"$ref": "#"})"},
      {"references_in_a_circle", GrammarKind::json_schema,
       R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})"},
      {"long_string", GrammarKind::json_schema, R"({"type": "string", "minLength": 1000000, "maxLength": 100000000})"},
      {"long_array", GrammarKind::json_schema, R"({"type": "array", "items": {"type": "array", "items": {"type": "array",
          "minItems": 10000, "maxItems": 1000000}, "minItems": 10000}, "minItems": 10000})"},
      {"pattern", GrammarKind::json_schema, R"({"type": "string", "pattern": "^((a{1,1000}){1,1000}){1,1000}$"})"},
      {"multiple", GrammarKind::json_schema, R"({"type": "integer", "multipleOf": 999983})"},
  };
  std::string doubled = "root ::= r0 root | \"\"\n", words = "{\"enum\": [\"w0\"", both = "{\"allOf\": [true";
  for (int i = 0; i < 60; ++i)
    doubled += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
  all.push_back({"doubled_gbnf", GrammarKind::gbnf, doubled + "r60 ::= [a-z]\n"});
  for (int i = 1; i < 60000; ++i) words += ",\"w" + std::to_string(i * 7919) + "\"";
  all.push_back({"many_values", GrammarKind::json_schema, words + "]}"});
  std::string required = "{\"type\": \"object\", \"required\": [\"r\"";
  for (int i = 0; i < 60000; ++i) required += ",\"r" + std::to_string(i) + "\"";
  all.push_back({"many_required", GrammarKind::json_schema, required + "]}"});
  for (int i = 0; i < 24; ++i) {
    const std::string n = std::to_string(i);
    both += R"(,{"anyOf": [{"properties": {"a)" + n + R"(": {"type": "integer"}}}, {"properties": {"b)" + n +
            R"(": {"type": "string"}}}]})";
  }
  all.push_back({"products", GrammarKind::json_schema, both + "]}"});
  std::string composed = R"({"$ref": "#/$defs/d0", "$defs": {"d40": {"properties": {"x": true}})";
  for (int i = 0; i < 40; ++i) {
    const std::string part = R"({"$ref": "#/$defs/d)" + std::to_string(i + 1) + "\"}";
    composed += ",\"d" + std::to_string(i) + R"(": {"properties": {"y": true}, "allOf": [)" + part + "," + part + "]}";
  }
  all.push_back({"composed", GrammarKind::json_schema, composed + "}}"});
  std::string properties = "{\"type\": \"object\", \"properties\": {\"p\": true";
  for (int i = 0; i < 3000; ++i)
    properties += ",\"p" + std::to_string(i) + "\": {\"type\": \"string\", \"pattern\": \"^x{1,50}$\"}";
  all.push_back({"many_properties", GrammarKind::json_schema, properties + "}}"});
  std::string chain = "{\"$ref\": \"#/$defs/d0\", \"$defs\": {\"d3000\": {\"type\": \"null\"}";
  for (int i = 0; i < 3000; ++i)
    chain += ",\"d" + std::to_string(i) + "\": {\"$ref\": \"#/$defs/d" + std::to_string(i + 1) + "\"}";
  all.push_back({"long_chain", GrammarKind::json_schema, chain + "}}"});
  return all;
}

class Bombs : public ::testing::TestWithParam<Bomb> {};

// No clock: how long each takes is measured by bench/grammars.cpp. What is held is that it comes back, and the memory.
TEST_P(Bombs, AreRefusedOrFailTheirText) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture("gpt2");
  const Bomb& bomb = GetParam();
  std::string said;
  try {
    const auto grammar = f.compiler->compile({.kind = bomb.kind, .text = bomb.text, .source = bomb.name});
    const Written written = write_randomly(f, *grammar, 1, 20);
    said = "wrote " + written.text;
  } catch (const InputError& e) {
    said = e.what();
    EXPECT_EQ(said.rfind(bomb.name, 0), 0u) << said;
  }
  EXPECT_LT(said.size(), 1000u) << said;
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  EXPECT_LT(used.ru_maxrss, 2 << 20) << "more than 2 GiB";  // KiB
  RecordProperty("said", said);
}

INSTANTIATE_TEST_SUITE_P(Grammars, Bombs, ::testing::ValuesIn(bombs()), [](const auto& test) { return test.param.name; });

// Each mask of it takes tens of milliseconds.
TEST(GrammarLimits, TheMasksOfATextHaveABudgetOfTime) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture("tales9m");
  Grammar grammar{.kind = GrammarKind::gbnf,
                  .text = "root ::= (s s s s)*\ns ::= [a-z ]* | [a-z ]* s",
                  .source = "slow",
                  .mask_seconds = 1e-6};
  const std::unique_ptr<Constraint> text = f.compiler->compile(grammar)->clone();
  const int32_t a = f.tokenizer->encode("a", false, Special::text).back();
  try {
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(is_allowed(text->allowed(), a));
      text->accept(a);
    }
    FAIL() << "no end of it";
  } catch (const ConstraintError& error) {
    EXPECT_EQ(error.code, "grammar_too_slow");
    EXPECT_NE(std::string(error.what()).find("--mask-seconds"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace vitrine
