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
    expect_person(text_with("response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}));
    const std::string digits = text_with("guided_regex", "[0-9]{3}-[a-c]+x");
    EXPECT_TRUE(std::regex_match(digits, std::regex("[0-9]{3}-[a-c]+x"))) << digits;
    const std::string choice = text_with("guided_choice", {"a.b (c)", "yes|no"});
    EXPECT_TRUE(choice == "a.b (c)" || choice == "yes|no") << choice;
    const std::string grammar = text_with("grammar", "root ::= \"the \" (\"king\" | \"queen\")");
    EXPECT_TRUE(grammar == "the king" || grammar == "the queen") << grammar;
  }
  for (const char* text : {R"([king] {"a": [1]})", "<dog> \"/\\ '`%@!", "^a$\n\t#&~-=:;,"})
    EXPECT_EQ(text_with("guided_choice", {text}), text);
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

// Without a rule for other properties a schema allows them, and a small model goes on inventing. Strict ones name them all.
TEST_F(Grammars, AStrictSchemaHasNoOtherProperties) {
  const OrderedJson open = OrderedJson::parse(R"({"type": "object", "required": ["who"],
    "properties": {"who": {"type": "object", "properties": {"properties": {"enum": ["king", "dog"]}}, "required": ["properties"]}}})");
  const OrderedJson format = {{"type", "json_schema"}, {"strict", true}, {"schema", open}};
  ServiceOptions options;
  options.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}";
  const Served talks(options);
  for (int seed = 0; seed < 4; ++seed) {
    const OrderedJson answered =
        talks.made("/v1/responses",
                   {{"input", "Who is there?"}, {"max_output_tokens", 200}, {"seed", seed}, {"text", {{"format", format}}}});
    const OrderedJson person = OrderedJson::parse(answered["output"][0]["content"][0]["text"].get<std::string>(), nullptr, false);
    EXPECT_EQ(answered["text"]["format"], format);
    EXPECT_TRUE(person == (OrderedJson{{"who", {{"properties", "king"}}}}) ||
                person == (OrderedJson{{"who", {{"properties", "dog"}}}}))
        << answered;
  }
  const OrderedJson message = talks.made("/v1/messages", {{"model", "tales9m"},
                                                          {"messages", {{{"role", "user"}, {"content", "Who is there?"}}}},
                                                          {"max_tokens", 200},
                                                          {"output_config", {{"format", format}, {"effort", "low"}}}});
  EXPECT_TRUE(OrderedJson::parse(message["content"][0]["text"].get<std::string>(), nullptr, false).contains("who")) << message;
  EXPECT_EQ(message["ignored_fields"], (OrderedJson{"output_config.effort"}));
}

// As pydantic writes the schema of a class: nothing is said of other properties.
TEST_F(Grammars, AnswersOfAClassAreWholeAndValid) {
  const OrderedJson person =
      OrderedJson::parse(R"({"title": "Person", "type": "object", "required": ["name", "age"], "properties": {
    "name": {"maxLength": 20, "title": "Name", "type": "string"},
    "age": {"maximum": 120, "minimum": 0, "title": "Age", "type": "integer"}}})");
  request["temperature"] = 1;
  request["max_tokens"] = 128;
  request["json_schema"] = person;
  request["n"] = 30;
  request["seed"] = 0;
  const OrderedJson made = served.made("/v1/completions", request);
  for (const OrderedJson& choice : made["choices"]) {
    const std::string text = choice["text"].get<std::string>();
    EXPECT_EQ(choice["finish_reason"], "stop") << text;
    const OrderedJson json = OrderedJson::parse(text, nullptr, false);
    ASSERT_TRUE(json.is_object()) << text;
    EXPECT_EQ(json.size(), 2U) << text;
    EXPECT_TRUE(json["name"].is_string() && json["age"].is_number_integer() && json["age"] >= 0 && json["age"] <= 120) << text;
  }
}

// Two tools, of which one has a schema that refers to its own parts, in a property called as a keyword is.
OrderedJson two_tools() {
  return OrderedJson::parse(R"([
    {"type": "function", "function": {"name": "weather", "parameters": {
      "type": "object", "properties": {"default": {"$ref": "#/$defs/Place"}}, "required": ["default"], "additionalProperties": false,
      "$defs": {"Place": {"type": "object", "properties": {"city": {"enum": ["Ulm", "Bern"]}}, "required": ["city"],
                          "additionalProperties": false}}}}},
    {"type": "function", "function": {"name": "now"}}])");
}

void expect_call(const std::string& name, const OrderedJson& arguments) {
  ASSERT_TRUE(name == "weather" || name == "now") << name;
  ASSERT_TRUE(arguments.is_object()) << arguments;
  if (name == "weather") {
    EXPECT_TRUE(arguments == (OrderedJson{{"default", {{"city", "Ulm"}}}}) ||
                arguments == (OrderedJson{{"default", {{"city", "Bern"}}}}))
        << arguments;
  }
}

TEST_F(Grammars, AForcedCallFollowsTheSchemaInEveryForm) {
  const std::string messages = "{% for m in messages %}{{ m['content'] }}{% endfor %}";
  for (const std::string form : {"<tool_call>", "[TOOL_CALLS]", ""})
    for (const int seed : {1, 2, 3}) {
      OrderedJson chat = {{"messages", {{{"role", "user"}, {"content", "Who is there?"}}}},
                          {"chat_template", form + "{{ tools }}" + messages},
                          {"tools", two_tools()},
                          {"max_tokens", 400},
                          {"temperature", 1.5},
                          {"seed", seed},
                          {"tool_choice", {{"type", "function"}, {"function", {{"name", "weather"}}}}}};
      const OrderedJson named = served.made("/v1/chat/completions", chat)["choices"][0];
      EXPECT_EQ(named["finish_reason"], "tool_calls") << form << named;
      ASSERT_EQ(named["message"]["tool_calls"].size(), 1U) << form << named;
      const OrderedJson& call = named["message"]["tool_calls"][0]["function"];
      EXPECT_EQ(call["name"], "weather");
      expect_call("weather", OrderedJson::parse(call["arguments"].get<std::string>()));
    }
}

TEST_F(Grammars, AForcedCallOfAnyToolThroughEveryEndpoint) {
  ServiceOptions options;
  options.chat_template = "<tool_call>{{ tools }}{% for m in messages %}{{ m['content'] }}{% endfor %}";
  const Served talks(options);
  OrderedJson tools = two_tools();
  tools.erase(1);
  const OrderedJson conversation = {{{"role", "user"}, {"content", "Who is there?"}}};
  const OrderedJson chat = talks.made("/v1/chat/completions",
                                      {{"messages", conversation}, {"tools", tools}, {"tool_choice", "required"}, {"seed", 5}});
  expect_call("weather",
              OrderedJson::parse(chat["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>()));

  OrderedJson flat = {{"type", "function"}, {"name", "weather"}, {"parameters", tools[0]["function"]["parameters"]}};
  for (const OrderedJson& choice : {OrderedJson("required"), OrderedJson::object({{"type", "function"}, {"name", "weather"}})}) {
    const OrderedJson answered = talks.made(
        "/v1/responses", {{"input", "Who?"}, {"tools", OrderedJson::array({flat})}, {"tool_choice", choice}, {"seed", 6}});
    ASSERT_EQ(answered["output"][0]["type"], "function_call") << answered;
    expect_call("weather", OrderedJson::parse(answered["output"][0]["arguments"].get<std::string>()));
  }

  flat = {{"name", "weather"}, {"input_schema", tools[0]["function"]["parameters"]}};
  for (const OrderedJson& choice :
       {OrderedJson::object({{"type", "any"}}), OrderedJson::object({{"type", "tool"}, {"name", "weather"}})}) {
    OrderedJson asked = {{"model", ""},
                         {"max_tokens", 400},
                         {"seed", 7},
                         {"messages", conversation},
                         {"tool_choice", choice},
                         {"tools", OrderedJson::array({flat})}};
    const OrderedJson answered = talks.made("/v1/messages", asked);
    EXPECT_EQ(answered["stop_reason"], "tool_use") << answered;
    ASSERT_EQ(answered["content"].size(), 1U) << answered;
    expect_call("weather", answered["content"][0]["input"]);
    asked["tool_choice"] = {{"type", "tool"}, {"name", "rm"}};
    const auto refused = talks.post("/v1/messages", asked);
    EXPECT_EQ(refused.status, 400);
    EXPECT_NE(refused.body.find("not among"), std::string::npos) << refused.body;
  }
}

// Hermes writes its calls in lines.
TEST_F(Grammars, StopStringsDoNotCutAForcedCall) {
  OrderedJson chat = {{"messages", {{{"role", "user"}, {"content", "Who?"}}}},
                      {"chat_template", "<tool_call>{{ tools }}"},
                      {"tools", two_tools()},
                      {"max_tokens", 400},
                      {"seed", 1},
                      {"tool_choice", {{"type", "function"}, {"function", {{"name", "weather"}}}}},
                      {"stop", {"\n", "}"}}};
  const OrderedJson made = served.made("/v1/chat/completions", chat);
  EXPECT_EQ(made["choices"][0]["finish_reason"], "tool_calls") << made;
  EXPECT_EQ(made["choices"][0]["message"]["tool_calls"].size(), 1U) << made;
  EXPECT_EQ(made["ignored_fields"], OrderedJson::array({"stop"}));
  chat.erase("tool_choice");
  EXPECT_FALSE(served.made("/v1/chat/completions", chat).contains("ignored_fields"));
}

TEST_F(Grammars, AForcedCallThatCannotBeIsRefused) {
  OrderedJson chat = {{"messages", {{{"role", "user"}, {"content", "Who?"}}}},
                      {"chat_template", "{{ tools }}"},
                      {"tools", two_tools()},
                      {"tool_choice", "required"}};
  chat["tools"][1]["function"]["parameters"] = {{"type", "nothing"}};
  expect_error(served.post("/v1/chat/completions", chat), 400, "tools", "nothing");
}

// OpenAI's response_format is that of the answer, and a call is none.
TEST_F(Grammars, AForcedCallGoesBeforeAFormat) {
  OrderedJson chat = {{"messages", {{{"role", "user"}, {"content", "Who?"}}}},
                      {"chat_template", "<tool_call>{{ tools }}"},
                      {"tools", two_tools()},
                      {"max_tokens", 400},
                      {"seed", 1},
                      {"tool_choice", {{"type", "function"}, {"function", {{"name", "weather"}}}}}};
  const OrderedJson formats = {{"response_format", {{"type", "json_object"}}}, {"guided_regex", "a"}};
  for (const auto& [field, value] : formats.items()) {
    OrderedJson with = chat;
    with[field] = value;
    const OrderedJson made = served.made("/v1/chat/completions", with);
    EXPECT_EQ(made["choices"][0]["message"]["tool_calls"].size(), 1U) << made;
    EXPECT_EQ(made["ignored_fields"], OrderedJson::array({field}));
  }
}

// With tool_choice auto the model is free to call or to answer, and the format is that of the answer.
TEST_F(Grammars, AFreeCallOrTheFormat) {
  const OrderedJson tools = OrderedJson::parse(R"([{"type": "function", "function": {"name": "go", "parameters": {
    "type": "object", "properties": {"way": {"enum": [1, 2]}}, "required": ["way"]}}}])");
  const OrderedJson format = {{"type", "object"}, {"properties", {{"answer", {{"enum", {7, 8}}}}}}, {"required", {"answer"}}};
  const OrderedJson chat = {{"messages", {{{"role", "user"}, {"content", "Who?"}}}},
                            {"tools", tools},
                            {"max_tokens", 300},
                            {"seed", 1},
                            {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", format}}}}}};
  const auto message = [&](const std::string& form, int32_t begin, int bias, const OrderedJson& more = OrderedJson::object()) {
    OrderedJson with = chat;
    with["chat_template"] = form + "{{ tools }}";
    with["logit_bias"] = {{std::to_string(begin), bias}};  // the byte with which a call begins
    with.update(more);
    return served.made("/v1/chat/completions", with)["choices"][0]["message"];
  };
  for (const auto& [form, begin] : {std::pair("<tool_call>", 66), std::pair("[TOOL_CALLS]", 97)}) {
    const OrderedJson call = message(form, begin, 100), answer = message(form, begin, -100);
    ASSERT_EQ(call["tool_calls"].size(), 1U) << call;
    EXPECT_EQ(call["tool_calls"][0]["function"]["name"], "go");
    const OrderedJson way = OrderedJson::parse(call["tool_calls"][0]["function"]["arguments"].get<std::string>())["way"];
    EXPECT_TRUE(way == 1 || way == 2) << call;
    for (const OrderedJson& json : {answer, message(form, begin, 100, {{"tool_choice", "none"}})}) {
      EXPECT_FALSE(json.contains("tool_calls")) << json;
      const OrderedJson content = OrderedJson::parse(json["content"].get<std::string>(), nullptr, false);
      EXPECT_TRUE(content["answer"] == 7 || content["answer"] == 8) << json;
    }
  }
  // Others do not write calls as JSON: the format alone.
  EXPECT_FALSE(message("<|tool_call>", 66, 100).contains("tool_calls"));
}

// Arguments that max_tokens cuts are no call: a client would take them for whole, or fail to read them.
TEST_F(Grammars, AForcedCallThatLengthCutsIsNone) {
  const std::string messages = "{% for m in messages %}{{ m['content'] }}{% endfor %}";
  const OrderedJson tools = OrderedJson::parse(R"([{"type": "function", "function": {"name": "say", "parameters": {
    "type": "object", "properties": {"text": {"type": "string", "minLength": 400}}, "required": ["text"]}}}])");
  for (const std::string form : {"<tool_call>", "[TOOL_CALLS]", ""})
    for (const bool streamed : {false, true}) {
      OrderedJson chat = {{"messages", {{{"role", "user"}, {"content", "Who?"}}}},
                          {"chat_template", form + "{{ tools }}" + messages},
                          {"tools", tools},
                          {"max_tokens", 20},
                          {"seed", 1},
                          {"tool_choice", "required"}};
      std::string reason;
      if (streamed) {
        for (const auto& event : served.events("/v1/chat/completions", chat)) {
          if (event.data == "[DONE]") continue;
          const OrderedJson json = event.json();
          for (const OrderedJson& choice : json["choices"]) {
            EXPECT_FALSE(choice["delta"].contains("tool_calls")) << choice;
            if (choice["finish_reason"].is_string()) reason = choice["finish_reason"].get<std::string>();
          }
        }
      } else {
        const OrderedJson choice = served.made("/v1/chat/completions", chat)["choices"][0];
        EXPECT_FALSE(choice["message"].contains("tool_calls")) << form << choice;
        reason = choice["finish_reason"].get<std::string>();
      }
      EXPECT_EQ(reason, "length") << form;
    }
}

TEST_F(Grammars, GrammarsMayBeInLark) {
  const std::string lark = "start: \"the \" WHO\nWHO: \"king\" | \"queen\"";
  for (const char* field : {"lark", "grammar", "guided_grammar"}) {
    const std::string text = text_with(field, lark);
    EXPECT_TRUE(text == "the king" || text == "the queen") << field << ": " << text;
  }
  EXPECT_EQ(text_with("structured_outputs", {{"grammar", "start: \"a\""}}), "a");
  EXPECT_EQ(text_with("grammar", "%llguidance {}\nstart: \"::=\""), "::=");
  expect_error(served.post("/v1/completions", {{"prompt", "a"}, {"grammar", "start: b"}}), 400, "grammar", "");
}

TEST_F(Grammars, JsonIsCompactOnRequest) {
  const OrderedJson compact = {{"disable_any_whitespace", true}};
  const std::regex form(R"(\{"name":".*","age":[0-9]+\})");
  for (const int seed : {1, 2, 3, 4}) {
    request["seed"] = seed;
    OrderedJson outputs = compact;
    outputs["json"] = schema;
    std::string text = text_with("structured_outputs", outputs);
    EXPECT_TRUE(std::regex_match(text, form)) << text;
    request["structured_outputs"] = compact;
    text = text_with("response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}});
    EXPECT_TRUE(std::regex_match(text, form)) << text;
    text = text_with("json_schema", schema);
    EXPECT_TRUE(std::regex_match(text, form)) << text;
    request.erase("structured_outputs");
    text = text_with("structured_outputs", {{"json", schema}, {"whitespace_pattern", "_"}});
    EXPECT_TRUE(text.starts_with("{_\"") || text.starts_with("{\"")) << text;
  }
  request["structured_outputs"] = {{"json", schema}, {"whitespace_pattern", "("}};
  expect_error(served.post("/v1/completions", request), 400, "structured_outputs.json", "");
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
  expect_error(served.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "a"}}}},
                                                    {"chat_template", "{{ tools }}"},
                                                    {"tools", two_tools()},
                                                    {"tool_choice", "required"}}),
               501, "tool_choice", "constrained decoding");
}

}  // namespace
}  // namespace vitrine::serve
