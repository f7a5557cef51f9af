// Reasoning apart from the answer, in every API, and how the requests that follow give it back.
#include <algorithm>

#include "grammar/grammar.h"
#include "scripted_model.h"
#include "support.h"

namespace vitrine::serve {
namespace {

// Begins the answer's reasoning, as templates of Qwen 3 and DeepSeek do; says how many tools there are and not which, so that
// prompts of all APIs are of one length.
constexpr const char* kThinkingTemplate =
    "{% if tools %}{{ tools | length }} tools <tool_call>\n{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}{{ "
    "'\\n' }}"
    "{% endfor %}{% if reasoning_effort %}effort: {{ reasoning_effort }}\n{% endif %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined and not enable_thinking %}<think></think>"
    "{% else %}<think>\n{% endif %}{% endif %}";

constexpr const char* kThoughts =
    "They greet.\n</think>\n\nI look.\n<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}</tool_call>";

const OrderedJson kUser = {{{"role", "user"}, {"content", "hi"}}};
const OrderedJson kWeather = {{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", {{"type", "object"}}}}}};

ServiceOptions template_options(const char* source) {
  ServiceOptions options;
  options.name = "thinker";
  options.chat_template = source;
  return options;
}

class Thinking : public testing::Test {
 protected:
  Thinking() {
    const ChatFormat format(vocabulary, std::string(kThinkingTemplate));
    Conversation conversation;
    conversation.messages = kUser;
    conversation.tools = OrderedJson::array({kWeather});
    write_scripted_model(folder, vocabulary, format.ids_of(format.rendered(conversation)).size(), kThoughts);
    served.emplace(template_options(kThinkingTemplate), folder.path());
  }
  OrderedJson chat(const OrderedJson& change = OrderedJson::object()) const {
    OrderedJson request = {{"messages", kUser}, {"temperature", 0}, {"tools", {kWeather}}};
    request.update(change);
    return request;
  }
  const Scratch folder;
  const Engine vocabulary{std::string(VITRINE_SOURCE) + "/models/tales9m"};
  std::optional<Served> served;
};

TEST_F(Thinking, ChatCompletions) {
  const OrderedJson whole = served->made("/v1/chat/completions", chat());
  const OrderedJson& message = whole["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "They greet.");
  EXPECT_EQ(message["content"], "I look.");
  ASSERT_EQ(message["tool_calls"].size(), 1U);
  EXPECT_EQ(message["tool_calls"][0]["function"], (OrderedJson{{"name", "weather"}, {"arguments", "{\"city\":\"Ulm\"}"}}));
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "tool_calls");
  const int64_t thought = whole["usage"]["completion_tokens_details"]["reasoning_tokens"];
  EXPECT_GT(thought, 2);
  EXPECT_LT(thought, whole["usage"]["completion_tokens"].get<int64_t>());

  std::string reasoning, content, arguments, order;
  for (const Event& event : served->events("/v1/chat/completions", chat())) {
    if (event.data == "[DONE]") continue;
    const OrderedJson delta = event.json()["choices"][0]["delta"];
    const auto took = [&](char kind) {
      if (order.empty() || order.back() != kind) order += kind;
    };
    if (delta.contains("reasoning_content")) {
      reasoning += delta["reasoning_content"].get<std::string>();
      took('r');
    }
    if (delta.contains("content") && delta["content"] != "") {
      content += delta["content"].get<std::string>();
      took('c');
    }
    if (delta.contains("tool_calls")) {
      arguments += delta["tool_calls"][0]["function"]["arguments"].get<std::string>();
      took('t');
    }
  }
  EXPECT_EQ(reasoning, "They greet.");
  EXPECT_EQ(content, "I look.");
  EXPECT_EQ(arguments, "{\"city\":\"Ulm\"}");
  EXPECT_EQ(order, "rct");

  const OrderedJson raw = served->made("/v1/chat/completions", chat({{"reasoning_format", "none"}}))["choices"][0]["message"];
  EXPECT_FALSE(raw.contains("reasoning_content"));
  EXPECT_EQ(raw["content"], "They greet.\n</think>\n\nI look.");
  const OrderedJson other = served->made("/v1/chat/completions", chat({{"tool_parser", "mistral"}}))["choices"][0]["message"];
  EXPECT_FALSE(other.contains("tool_calls"));
  expect_error(served->post("/v1/chat/completions", chat({{"reasoning_format", "loud"}})), 400, "reasoning_format",
               "expected auto, none, think");
  expect_error(served->post("/v1/chat/completions", chat({{"tool_parser", "loud"}})), 400, "tool_parser",
               "expected auto, harmony");
}

TEST_F(Thinking, ACallThatLengthCutsIsToldAsSuch) {
  const int64_t all = served->made("/v1/chat/completions", chat())["usage"]["completion_tokens"];
  int cut = 0;
  for (int64_t most = std::max<int64_t>(1, all - 12); most < all; most += 2) {
    const OrderedJson choice = served->made("/v1/chat/completions", chat({{"max_tokens", most}}))["choices"][0];
    if (!choice["message"].contains("tool_calls")) continue;
    const std::string arguments = choice["message"]["tool_calls"][0]["function"]["arguments"];
    if (OrderedJson::accept(arguments)) continue;
    ++cut;
    EXPECT_EQ(choice["finish_reason"], "length") << choice;
    const OrderedJson tools = {{{"name", "weather"}, {"input_schema", {{"type", "object"}}}}};
    const OrderedJson message = served->made(
        "/v1/messages", {{"model", ""}, {"max_tokens", most}, {"temperature", 0}, {"messages", kUser}, {"tools", tools}});
    EXPECT_EQ(message["stop_reason"], "max_tokens");
    EXPECT_EQ(message["content"].back()["input"], (OrderedJson{{"INVALID_JSON", arguments}}));
  }
  EXPECT_GT(cut, 0);
}

TEST_F(Thinking, Messages) {
  const OrderedJson request = {{"model", ""},
                               {"max_tokens", 200},
                               {"temperature", 0},
                               {"messages", kUser},
                               {"tools", {{{"name", "weather"}, {"input_schema", {{"type", "object"}}}}}}};
  const OrderedJson json = served->made("/v1/messages", request);
  ASSERT_EQ(json["content"].size(), 3U);
  EXPECT_EQ(json["content"][0], (OrderedJson{{"type", "thinking"}, {"thinking", "They greet."}, {"signature", ""}}));
  EXPECT_EQ(json["content"][1], (OrderedJson{{"type", "text"}, {"text", "I look."}}));
  EXPECT_EQ(json["content"][2]["input"], (OrderedJson{{"city", "Ulm"}}));
  std::string told;
  for (const Event& event : served->events("/v1/messages", request)) {
    const OrderedJson part = event.json();
    if (event.name == "content_block_start") {
      told += part["content_block"]["type"].get<std::string>() + "(";
      EXPECT_EQ(part["index"], std::ranges::count(told, ')'));
    }
    if (event.name == "content_block_delta")
      told += part["delta"].value("thinking", "") + part["delta"].value("text", "") + part["delta"].value("partial_json", "");
    if (event.name == "content_block_stop") told += ")";
  }
  EXPECT_EQ(told, "thinking(They greet.)text(I look.)tool_use({\"city\":\"Ulm\"})");
  // The answer goes back as it came.
  OrderedJson next = request;
  next["messages"].push_back({{"role", "assistant"}, {"content", json["content"]}});
  next["messages"].push_back(
      {{"role", "user"},
       {"content", {{{"type", "tool_result"}, {"tool_use_id", json["content"][2]["id"]}, {"content", "rain"}}}}});
  next["max_tokens"] = 1;
  EXPECT_FALSE(served->made("/v1/messages", next).contains("ignored_fields"));
  next["thinking"] = {{"type", "loud"}};
  EXPECT_EQ(served->post("/v1/messages", next).status, 400);
}

TEST_F(Thinking, Responses) {
  const OrderedJson request = {{"input", "hi"},
                               {"temperature", 0},
                               {"tools", {{{"type", "function"}, {"name", "weather"}, {"parameters", {{"type", "object"}}}}}}};
  const OrderedJson output = served->made("/v1/responses", request)["output"];
  ASSERT_EQ(output.size(), 3U);
  EXPECT_EQ(output[0]["type"], "reasoning");
  EXPECT_EQ(output[0]["content"], OrderedJson::array({{{"type", "reasoning_text"}, {"text", "They greet."}}}));
  EXPECT_EQ(output[1]["content"][0]["text"], "I look.");
  EXPECT_EQ(output[2]["arguments"], "{\"city\":\"Ulm\"}");
  OrderedJson built = OrderedJson::array(), texts = OrderedJson::array();
  const std::vector<Event> events = served->events("/v1/responses", request);
  for (size_t i = 0; i < events.size(); ++i) {
    const OrderedJson event = events[i].json();
    const std::string type = event["type"];
    EXPECT_EQ(event["sequence_number"], i);
    if (type == "response.output_item.added") texts.push_back("");
    if (type.ends_with(".delta"))
      texts[event["output_index"].get<size_t>()] =
          texts[event["output_index"].get<size_t>()].get<std::string>() + event["delta"].get<std::string>();
    if (type == "response.output_item.done") built.push_back(event["item"]);
  }
  EXPECT_EQ(texts, (OrderedJson{"They greet.", "I look.", "{\"city\":\"Ulm\"}"}));
  EXPECT_EQ(events.back().json()["response"]["output"], built);
  EXPECT_EQ(built.size(), 3U);
  // The items go back as they came.
  OrderedJson next = request;
  next["input"] = kUser;
  for (const OrderedJson& item : built) next["input"].push_back(item);
  next["input"].push_back({{"type", "function_call_output"}, {"call_id", built[2]["call_id"]}, {"output", "rain"}});
  next["max_output_tokens"] = 1;
  next["reasoning"] = {{"effort", "low"}};
  const OrderedJson answer = served->made("/v1/responses", next);
  EXPECT_FALSE(answer.contains("ignored_fields")) << answer;
  EXPECT_EQ(answer["reasoning"]["effort"], "low");
}

TEST_F(Thinking, Ollama) {
  const OrderedJson shown = served->made("/api/show", {{"model", "thinker"}});
  EXPECT_EQ(shown["capabilities"], OrderedJson::array({"completion", "tools", "thinking"}));
  OrderedJson request = {{"messages", kUser}, {"options", {{"temperature", 0}}}, {"tools", {kWeather}}, {"think", true}};
  const Reply reply = served->post("/api/chat", request);
  ASSERT_EQ(reply.status, 200) << reply.body;
  OrderedJson message = {{"thinking", ""}, {"content", ""}, {"tool_calls", OrderedJson::array()}};
  for (size_t at = 0; at < reply.body.size(); at = reply.body.find('\n', at) + 1) {
    const OrderedJson part = OrderedJson::parse(reply.body.substr(at, reply.body.find('\n', at) - at))["message"];
    for (const char* key : {"thinking", "content"}) message[key] = message[key].get<std::string>() + part.value(key, "");
    if (part.contains("tool_calls"))
      for (const OrderedJson& call : part["tool_calls"]) message["tool_calls"].push_back(call);
  }
  EXPECT_EQ(message["thinking"], "They greet.");
  EXPECT_EQ(message["content"], "I look.");
  ASSERT_EQ(message["tool_calls"].size(), 1U);
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], (OrderedJson{{"city", "Ulm"}}));
  request["stream"] = false;
  EXPECT_EQ(served->made("/api/chat", request)["message"]["thinking"], "They greet.");
  request["think"] = "loud";
  EXPECT_EQ(served->post("/api/chat", request).status, 400);
}

TEST_F(Thinking, PromptsOfConversations) {
  const auto prompt = [&](const OrderedJson& messages, const OrderedJson& more = OrderedJson::object()) {
    OrderedJson request = {{"messages", messages}};
    request.update(more);
    return served->made("/apply-template", request)["prompt"].get<std::string>();
  };
  for (const char* key : {"reasoning_content", "reasoning", "thinking"})
    EXPECT_EQ(prompt({{{"role", "user"}, {"content", "hi"}},
                      {{"role", "assistant"}, {"content", "Hello."}, {key, "They greet."}},
                      {{"role", "user"}, {"content", "on"}}}),
              "<user>hi\n<assistant><think>They greet.</think>Hello.\n<user>on\n<assistant><think>\n");
  EXPECT_EQ(prompt(kUser, {{"reasoning_effort", "high"}}), "<user>hi\neffort: high\n<assistant><think>\n");
  EXPECT_EQ(prompt(kUser, {{"reasoning_effort", "none"}}), "<user>hi\neffort: none\n<assistant><think></think>");
  EXPECT_EQ(prompt(kUser, {{"chat_template_kwargs", {{"enable_thinking", false}}}}), "<user>hi\n<assistant><think></think>");
  EXPECT_EQ(prompt(kUser, {{"reasoning_effort", "high"}, {"chat_template_kwargs", {{"reasoning_effort", "low"}}}}),
            "<user>hi\neffort: low\n<assistant><think>\n");
  expect_error(served->post("/apply-template", {{"messages", kUser}, {"reasoning_effort", "much"}}), 400, "reasoning_effort",
               "expected none, minimal");
}

// Constrained decoding writes a call as JSON whatever the template's syntax, and no reasoning though the template begins it.
TEST(ForcedCalls, AreReadInEverySyntax) {
  if (!has_grammars()) GTEST_SKIP() << "this build has no llguidance";
  for (const char* source :
       {kThinkingTemplate, "{{ tools }}<|channel|><|message|>{{ messages }}", "{{ tools }}<|tool_call>{{ messages }}",
        "{{ tools }}[TOOL_CALLS]{{ messages }}", "{{ tools }}{{ messages }}"}) {
    const Served served(template_options(source));
    OrderedJson tool = kWeather;
    tool["function"]["parameters"] = {{"type", "object"},
                                      {"properties", {{"days", {{"type", "integer"}, {"minimum", 1}, {"maximum", 9}}}}},
                                      {"required", {"days"}},
                                      {"additionalProperties", false}};
    const OrderedJson choice = served.made("/v1/chat/completions", {{"messages", kUser},
                                                                    {"temperature", 0},
                                                                    {"max_tokens", 200},
                                                                    {"tools", {tool}},
                                                                    {"tool_choice", "required"}})["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls") << source << choice;
    EXPECT_FALSE(choice["message"].contains("reasoning_content")) << choice;
    EXPECT_TRUE(choice["message"]["content"].is_null()) << choice;
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1U) << choice;
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "weather");
  }
}

TEST(Harmony, ChannelsBecomeReasoningContentAndCalls) {
  const char* source = "{% if tools %}tools\n{% endif %}{{ messages[0].content }}<|start|>assistant{# <|channel|><|message|> #}";
  const Engine vocabulary{std::string(VITRINE_SOURCE) + "/models/tales9m"};
  const ChatFormat format(vocabulary, std::string(source));
  Conversation conversation;
  conversation.messages = kUser;
  conversation.tools = OrderedJson::array({kWeather});
  const Scratch folder;
  write_scripted_model(folder, vocabulary, format.ids_of(format.rendered(conversation)).size(),
                       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
                       "<|constrain|>json<|message|>{\"city\": \"Ulm\"}<|call|>");
  const Served served(template_options(source), folder.path());
  const OrderedJson request = {{"messages", kUser}, {"temperature", 0}, {"tools", {kWeather}}};
  const OrderedJson message = served.made("/v1/chat/completions", request)["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm.") << message;
  EXPECT_TRUE(message["content"].is_null()) << message;
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{\"city\":\"Ulm\"}");
}

// Templates differ in the ids that they take and in how they print arguments.
TEST(ToolMessages, GoToTemplatesAsTheyExpectThem) {
  const OrderedJson messages = {
      {{"role", "user"}, {"content", "hi"}},
      {{"role", "assistant"},
       {"tool_calls",
        {{{"id", "call_0123456789"}, {"type", "function"}, {"function", {{"name", "weather"}, {"arguments", "{}"}}}}}}},
      {{"role", "tool"}, {"tool_call_id", "call_0123456789"}, {"content", "rain"}}};
  const char* mistral =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}[TOOL_CALLS]{% if c.id | length != 9 %}"
      "{{ raise_exception('nine') }}{% endif %}{{ c.id }}{% endfor %}{% if m.role == 'tool' %}={{ m.tool_call_id }}{% endif %}"
      "{% endfor %}";
  const Served short_ids(template_options(mistral));
  const std::string prompt = short_ids.made("/apply-template", {{"messages", messages}})["prompt"];
  const size_t at = prompt.find("[TOOL_CALLS]") + 12;
  EXPECT_EQ(prompt.substr(at, 9), prompt.substr(at + 10)) << prompt;

  const char* text =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ 'call ' + c.function.arguments }}{% endfor %}{% endfor %}";
  const Served as_text(template_options(text));
  EXPECT_NE(as_text.made("/apply-template", {{"messages", messages}})["prompt"].get<std::string>().find("call {}"),
            std::string::npos);
}

}  // namespace
}  // namespace vitrine::serve
