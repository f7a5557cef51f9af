// Texts held to a form from the command line.
#include "cli/program.h"
#include "grammar/grammar.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kSchema = R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
  "age": {"type": "integer", "minimum": 0, "maximum": 120}}, "required": ["name", "age"], "additionalProperties": false})";

TEST(GrammarFlags, WithoutTheLibraryTheySayWhatToInstall) {
  if (has_grammars()) GTEST_SKIP() << "built with llguidance";
  expect_refused({"generate", "a", "--regex", "a"}, {"built without grammars", "Install Rust 1.87", "VITRINE_GRAMMARS=ON"});
}

TEST(GrammarFlags, JsonOfASchema) {
  if (!has_grammars()) GTEST_SKIP() << "built without llguidance";
  const Scratch folder;
  folder.write("answer.json", kSchema);
  const auto made = [&](const std::string& schema, const char* seed) {
    const Outcome outcome = vitrine(
        {"generate", "The hero:", "--json-schema", schema, "--temperature", "1.5", "--seed", seed, "--json", "-n", "200"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  };
  for (const char* seed : {"1", "2", "3"}) {
    const Json document = made(folder / "answer.json", seed);
    EXPECT_EQ(document["finish_reason"], "stop");
    const Json value = Json::parse(document["text"].get<std::string>());
    EXPECT_EQ(value.size(), 2u);
    EXPECT_TRUE(value["name"].is_string() && value["age"].is_number_integer());
    EXPECT_EQ(made(kSchema, seed)["text"], document["text"]);
  }
}

TEST(GrammarFlags, RegexGbnfAndLarkInGenerateAndChat) {
  if (!has_grammars()) GTEST_SKIP() << "built without llguidance";
  const Scratch folder;
  folder.write("g.gbnf", "root ::= \"(\" inner \")\"\ninner ::= \"<\" [0-9] \">\"\n");
  folder.write("g.lark", "start: \"yes\" | \"no\"\n");
  const Outcome regex = vitrine({"generate", "The year", "--regex", "[0-9]{4} [A-Z]", "--json"});
  ASSERT_EQ(regex.code, 0) << regex.err;
  const std::string year = regex.json()["text"];
  ASSERT_EQ(year.size(), 6u) << year;
  EXPECT_TRUE(std::isdigit(year[3]) && year[4] == ' ' && std::isupper(year[5])) << year;
  const Outcome gbnf = vitrine({"generate", "Sum", "--grammar", folder / "g.gbnf", "--json", "--lookup", "3"});
  ASSERT_EQ(gbnf.code, 0) << gbnf.err;
  const std::string sum = gbnf.json()["text"];
  EXPECT_TRUE(sum.size() == 5 && sum.starts_with("(<") && std::isdigit(sum[2]) && sum.ends_with(">)")) << sum;
  const Outcome lark = vitrine({"chat", "Is it so?", "--lark", folder / "g.lark", "--json", "--template",
                                std::string(VITRINE_SOURCE) + "/examples/plain-chat.jinja"});
  ASSERT_EQ(lark.code, 0) << lark.err;
  const std::string said = lark.json()["text"];
  EXPECT_TRUE(said == "yes" || said == "no") << said;
}

TEST(GrammarFlags, WhatDoesNotGoTogetherIsRefused) {
  expect_refused({"generate", "a", "--regex", "a", "--grammar", "b"}, {"--regex and --grammar contradict each other"});
  expect_refused({"generate", "a", "--regex", "a", "--beams", "2"}, {"--regex does not go together with --beams"});
  expect_refused({"generate", "a", "--regex", ""}, {"--regex", "is empty; leave the option out"});
  if (!has_grammars()) return;
  expect_refused({"generate", "a", "--regex", "(a"}, {"--regex: ", "unclosed"});
  expect_refused({"generate", "a", "--json-schema", "{\"contains\": true, \"type\": \"array\"}"},
                 {"--json-schema: ", "contains"});
  expect_refused({"generate", "a", "--json-schema", "nowhere.json"}, {"nowhere.json"});
  expect_refused({"generate", "--tokens", "1,2", "--model", std::string(VITRINE_GOLDEN) + "/models/gpt2_b/model", "--regex", "a"},
                 {"no tokenizer"});
}

}  // namespace
}  // namespace vitrine
