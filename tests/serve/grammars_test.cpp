// Constrained decoding over a socket.
#include <regex>

#include "grammar/grammar.h"
#include "support.h"

namespace vitrine::serve {
namespace {

class Grammars : public testing::Test {
 protected:
  Served served;
  OrderedJson request = {{"prompt", "Once upon a time"}, {"max_tokens", 200}, {"temperature", 1.5}};
  const OrderedJson schema = {{"type", "object"},
                              {"properties", {{"name", {{"type", "string"}, {"maxLength", 8}}}, {"age", {{"enum", {7, 70}}}}}},
                              {"required", {"name", "age"}},
                              {"additionalProperties", false}};

  void SetUp() override {
    if (!has_grammars()) GTEST_SKIP() << "this build has no llguidance";
  }
  std::string text_with(const std::string& field, const OrderedJson& value) {
    OrderedJson with = request;
    with[field] = value;
    return served.made("/v1/completions", with)["choices"][0]["text"].get<std::string>();
  }
  static void expect_person(const std::string& text) {
    const OrderedJson json = OrderedJson::parse(text, nullptr, false);
    ASSERT_TRUE(json.is_object()) << text;
    EXPECT_EQ(json.size(), 2U) << text;
    EXPECT_TRUE(json["name"].is_string() && json["name"].get<std::string>().size() <= 4 * 8) << text;
    EXPECT_TRUE(json["age"] == 7 || json["age"] == 70) << text;
  }
};

TEST_F(Grammars, EveryFieldConstrainsTheText) {
  for (const int seed : {1, 2, 3}) {
    request["seed"] = seed;
    expect_person(text_with("json_schema", schema));
    expect_person(text_with("guided_json", schema.dump()));
    expect_person(text_with("structured_outputs", {{"json", schema}}));
    const std::string digits = text_with("guided_regex", "[0-9]{3}-[a-c]+x");
    EXPECT_TRUE(std::regex_match(digits, std::regex("[0-9]{3}-[a-c]+x"))) << digits;
    const std::string choice = text_with("guided_choice", {"a.b (c)", "yes|no"});
    EXPECT_TRUE(choice == "a.b (c)" || choice == "yes|no") << choice;
    const std::string grammar = text_with("grammar", "root ::= \"the \" (\"king\" | \"queen\")");
    EXPECT_TRUE(grammar == "the king" || grammar == "the queen") << grammar;
  }
}

TEST_F(Grammars, ChoicesOfAStreamEachConform) {
  request["json_schema"] = schema;
  request["n"] = 4;
  request["stream"] = true;
  std::vector<std::string> texts(4);
  for (const auto& event : served.events("/v1/completions", request)) {
    if (event.data == "[DONE]") continue;
    const OrderedJson json = event.json();
    for (const OrderedJson& choice : json["choices"]) texts[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
  }
  for (const std::string& text : texts) expect_person(text);
}

TEST_F(Grammars, ChatAndResponsesReadAFormat) {
  const std::string plain = "{% for m in messages %}{{ m['content'] }}{% endfor %}";
  OrderedJson chat = {{"messages", {{{"role", "user"}, {"content", "Who is there?"}}}},
                      {"chat_template", plain},
                      {"max_tokens", 200},
                      {"seed", 4},
                      {"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "person"}, {"schema", schema}}}}}};
  expect_person(served.made("/v1/chat/completions", chat)["choices"][0]["message"]["content"].get<std::string>());
  chat["response_format"] = {{"type", "json_object"}};
  chat["max_tokens"] = 400;
  chat["temperature"] = 0;
  const OrderedJson made = served.made("/v1/chat/completions", chat)["choices"][0];
  EXPECT_TRUE(made["message"]["content"].get<std::string>().starts_with("{"));
  ServiceOptions options;
  options.chat_template = plain;
  const Served talks(options);
  const OrderedJson answered =
      talks.made("/v1/responses", {{"input", "Who is there?"},
                                   {"max_output_tokens", 200},
                                   {"seed", 4},
                                   {"text", {{"format", {{"type", "json_schema"}, {"name", "person"}, {"schema", schema}}}}}});
  expect_person(answered["output"][0]["content"][0]["text"].get<std::string>());
}

TEST_F(Grammars, RefusalsNameTheField) {
  const auto refuses = [&](const OrderedJson& more, const std::string& field, const std::string& words) {
    OrderedJson with = request;
    with.update(more);
    expect_error(served.post("/v1/completions", with), 400, field, words);
  };
  refuses({{"json_schema", {{"type", "nothing"}}}}, "json_schema", "nothing");
  refuses({{"guided_regex", "(["}}, "guided_regex", "");
  refuses({{"grammar", "root ::= ("}}, "grammar", "");
  refuses({{"guided_choice", OrderedJson::array()}}, "guided_choice", "empty");
  refuses({{"structured_outputs", {{"yaml", 1}}}}, "structured_outputs.yaml", "expected json");
  refuses({{"guided_regex", "a"}, {"grammar", "root ::= \"a\""}}, "guided_regex", "give one");
}

TEST(WithoutGrammars, AConstraintIsNotSupported) {
  if (has_grammars()) GTEST_SKIP() << "this build has llguidance";
  Served served;
  expect_error(served.post("/v1/completions", {{"prompt", "Once"}, {"guided_regex", "a"}}), 501, "guided_regex",
               "constrained decoding");
}

}  // namespace
}  // namespace vitrine::serve
