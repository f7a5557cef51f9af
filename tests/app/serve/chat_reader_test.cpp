// Content, reasoning and calls of tools in generated text, in the syntaxes of many families: what is no call stays content,
// and any way to cut a text gives the same.
#include "serve/chat_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace vitrine::serve {
namespace {

const OrderedJson kTools = OrderedJson::parse(R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}, "units": {"type": ["string", "null"]}, "places": {"type": "array"}}}}},
  {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
    "a": {"type": "number"}, "b": {"type": "number"}, "exact": {"type": "boolean"}}}}}])");

ChatReaderOptions options_of(ToolForm form, bool thinks = true) {
  ChatReaderOptions options;
  options.form = form;
  options.tools = kTools;
  options.harmony = form == ToolForm::harmony;
  if (thinks && !options.harmony)
    options.reasoning = &kReasoningSyntaxes[form == ToolForm::mistral ? 1 : form == ToolForm::gemma ? 2 : 0];
  return options;
}

Said read_whole(const std::string& text, const ChatReaderOptions& options) {
  ChatReader reader(options);
  reader.read(text);
  reader.end();
  return reader.said();
}

// What a client makes of the parts.
struct Client {
  Said said;
  bool open = false;
  void take(const std::vector<SaidPart>& parts) {
    for (const SaidPart& part : parts) {
      switch (part.kind) {
        case SaidPart::Kind::content: said.content += part.text; break;
        case SaidPart::Kind::reasoning: said.reasoning += part.text; break;
        case SaidPart::Kind::call:
          ASSERT_FALSE(open);
          said.calls.push_back({part.text, "", false});
          open = true;
          break;
        case SaidPart::Kind::arguments:
          ASSERT_TRUE(open);
          said.calls.back().arguments += part.text;
          break;
        case SaidPart::Kind::call_end:
          ASSERT_TRUE(open);
          said.calls.back().complete = part.complete;
          open = false;
          break;
      }
    }
  }
};

std::string shown(const Said& said) {
  std::string text = "content: " + said.content + "\nreasoning: " + said.reasoning;
  for (const ToolCall& call : said.calls) text += "\n" + call.name + (call.complete ? " " : " incomplete ") + call.arguments;
  return text;
}

using Calls = std::vector<std::pair<std::string, std::string>>;

void expect_said(ToolForm form, const std::string& text, const std::string& content, const Calls& calls,
                 const std::string& reasoning = "") {
  const Said said = read_whole(text, options_of(form));
  std::string expected = "content: " + content + "\nreasoning: " + reasoning;
  for (const auto& [name, arguments] : calls) expected += "\n" + name + " " + arguments;
  EXPECT_EQ(shown(said), expected) << text;
  for (const ToolCall& call : said.calls) EXPECT_TRUE(OrderedJson::accept(call.arguments)) << call.arguments;
  Client client;
  ChatReader reader(options_of(form));
  for (const char c : text) client.take(reader.read(std::string(1, c)));
  client.take(reader.end());
  EXPECT_EQ(shown(client.said), expected) << "byte by byte: " << text;
}

TEST(ChatReader, Hermes) {
  const ToolForm form = ToolForm::hermes;
  expect_said(form, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>", "",
              {{"weather", R"({"city":"Ulm"})"}});
  expect_said(form,
              "Let me see.\n\n<tool_call>{\"name\":\"add\",\"arguments\":{\"b\":1,\"a\":2}}</tool_call>\n"
              "<tool_call>{\"name\":\"weather\"}</tool_call>",
              "Let me see.", {{"add", R"({"b":1,"a":2})"}, {"weather", "{}"}});
  expect_said(form, "<tool_call>{\"name\":\"add\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>", "", {{"add", R"({"a":1})"}});
  expect_said(form, "<tool_call>{\"arguments\":{\"a\":1},\"name\":\"add\"}</tool_call>", "", {{"add", R"({"a":1})"}});
  expect_said(form, "<tool_call>{\"name\":\"add\",\"arguments\":{}}", "", {{"add", "{}"}});  // the end was not written
  expect_said(form, "<tool_call>{\"name\":\"add\",\"arguments\":{}</tool_call> Well", " Well", {{"add", "{}"}});
  expect_said(form, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":\"</tool_call>\"}}</tool_call> So.", " So.",
              {{"add", R"({"a":"</tool_call>"})"}});
  expect_said(form, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":\"\\d\\u00e9\n\",\"b\":True,}}</tool_call>", "",
              {{"add", R"({"a":"\\d\u00e9\n","b":true})"}});
  expect_said(form, "<think>\nWhich <tool_call>?\n</think>\n\nSee:\n<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>",
              "See:", {{"add", "{}"}}, "Which <tool_call>?");
}

TEST(ChatReader, Qwen3Coder) {
  const ToolForm form = ToolForm::qwen_coder;
  expect_said(
      form,
      "I look.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
      "</function>\n</tool_call>",
      "I look.", {{"weather", R"({"city":"Ulm","days":3})"}});
  expect_said(
      form,
      "<function=weather>\n<parameter=city>\n12\nlines\n\n</parameter>\n<parameter=places>\n[1, {\"a\": 2}]\n</parameter>\n"
      "<parameter=units>\nnull\n</parameter>\n</function>\n</tool_call>\n<function=add>\n</function>",
      "", {{"weather", R"({"city":"12\nlines\n","places":[1,{"a":2}],"units":null})"}, {"add", "{}"}});
  expect_said(form,
              "<tool_call>\n<function=add>\n<parameter=a>\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n</tool_call>", "",
              {{"add", R"({"a":"","exact":true})"}});
  expect_said(form, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>", "", {{"add", R"({"a":1})"}});
  expect_said(form, "<tool_call>\n<function=weather>\n<parameter=city>\n\"</x>\\\n</parameter>\n</function>\n</tool_call>", "",
              {{"weather", R"({"city":"\"</x>\\"})"}});
}

TEST(ChatReader, DeepSeek) {
  const ToolForm form = ToolForm::deepseek;
  const std::string begin = "<｜tool▁calls▁begin｜>", end = "<｜tool▁calls▁end｜>", call = "<｜tool▁call▁begin｜>",
                    name = "<｜tool▁sep｜>", call_end = "<｜tool▁call▁end｜>";
  expect_said(form,
              "<think>Look.</think>I look." + begin + call + "function" + name + "weather\n```json\n{\"city\": \"Ulm\"}\n```" +
                  call_end + "\n" + call + "function" + name + "add\n```json\n{\"a\": 1, \"b\": [2]}\n```" + call_end + end,
              "I look.", {{"weather", R"({"city":"Ulm"})"}, {"add", R"({"a":1,"b":[2]})"}}, "Look.");
  expect_said(form,
              begin + call + "weather" + name + "{\"city\": \"```\"}" + call_end + call + "add" + name + "{}" + call_end + end,
              "", {{"weather", R"({"city":"```"})"}, {"add", "{}"}});
  expect_said(form, call + "add" + name + "{\"a\": 1}" + call_end + " Well.", " Well.", {{"add", R"({"a":1})"}});
  for (const std::string& text : {begin, begin + call, begin + call + "function" + name + "rm\n```json\n{}\n```" + call_end + end,
                                  call + "add", begin + call + "add" + name + "12", std::string("```json\n{}\n```")})
    expect_said(form, text, text, {});
}

TEST(ChatReader, Glm) {
  const ToolForm form = ToolForm::glm;
  expect_said(form,
              "<think>Look.</think>\nI look.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Ulm\n am \"Rhein\"\n"
              "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>places</arg_key>\n"
              "<arg_value>[1, {\"x\": true}]</arg_value>\n</tool_call>",
              "I look.", {{"weather", R"({"city":"Ulm\n am \"Rhein\"\n","days":3,"places":[1,{"x":true}]})"}}, "Look.");
  expect_said(form,
              "<tool_call>add\n</tool_call>\n<tool_call>add<arg_key>a</arg_key><arg_value>1.5</arg_value><arg_key>exact</arg_key>"
              "<arg_value>true</arg_value></tool_call> So.",
              " So.", {{"add", "{}"}, {"add", R"({"a":1.5,"exact":true})"}});
  for (const char* text : {"<tool_call>rm\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
                           "<tool_call>rm</tool_call>", "<arg_key>a</arg_key>"})
    expect_said(form, text, text, {});
}

TEST(ChatReader, Mistral) {
  const ToolForm form = ToolForm::mistral;
  expect_said(form,
              "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"weather\", \"arguments\": {}, \"id\": "
              "\"x\"}]",
              "", {{"add", R"({"a":1})"}, {"weather", "{}"}});
  expect_said(form, "Well: [TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]weather{\"city\": \"[}\"}",
              "Well:", {{"add", R"({"a":1})"}, {"weather", R"({"city":"[}"})"}});
  expect_said(form, "[THINK]Hm.[/THINK]Now.[TOOL_CALLS]add[CALL_ID]abc123def[ARGS]{}", "Now.", {{"add", "{}"}}, "Hm.");
}

TEST(ChatReader, Llama3) {
  const ToolForm form = ToolForm::llama;
  expect_said(form, "{\"name\": \"add\", \"parameters\": {\"a\": 1}}", "", {{"add", R"({"a":1})"}});
  expect_said(form, "<|python_tag|>{\"name\": \"add\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": {}}", "",
              {{"add", "{}"}, {"weather", "{}"}});
  expect_said(form, "\n{\"type\": \"function\", \"name\": \"add\", \"parameters\": {\"a\": 1}}", "", {{"add", R"({"a":1})"}});
  expect_said(form, "{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"a\": 1}}}", "",
              {{"add", R"({"a":1})"}});
  expect_said(form, "{\"function\": \"add\", \"parameters\": {\"a\": 1}}", "", {{"add", R"({"a":1})"}});
  expect_said(form, "<|python_tag|>weather.call(city=\"Ulm\")", "", {{"weather", R"({"city":"Ulm"})"}});
  expect_said(form, "<function=add>{\"a\": 1}</function>", "", {{"add", R"({"a":1})"}});
  expect_said(form, "[weather(city='St. \"U\"', days=2, units=None), add(a=[1, (2, {'x': True})], b=-1.5e3)]", "",
              {{"weather", R"({"city":"St. \"U\"","days":2,"units":null})"}, {"add", R"({"a":[1,[2,{"x":true}]],"b":-1.5e3})"}});
}

TEST(ChatReader, PhiAndGranite) {
  expect_said(ToolForm::phi, "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]<|/tool_call|>", "",
              {{"add", R"({"a":1})"}});
  expect_said(ToolForm::phi, "functools[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]", "", {{"add", R"({"a":1})"}});
  expect_said(ToolForm::phi, "<|tool_call|>[{\"name\": \"add\", \"arguments\": {}}, {\"name\": \"weather\", \"arguments\": {}}]",
              "", {{"add", "{}"}, {"weather", "{}"}});
}

TEST(ChatReader, Gemma) {
  expect_said(ToolForm::gemma,
              "<|channel>thought\nThe weather.<channel|>I look.<|tool_call>call:weather{city:<|\"|>Ulm \"a\\b\"\n<|\"|>,days:3,"
              "places:[<|\"|>x<|\"|>,{y:true}]}<tool_call|><|tool_call>call:add{}<tool_call|>",
              "I look.", {{"weather", R"({"city":"Ulm \"a\\b\"\n","days":3,"places":["x",{"y":true}]})"}, {"add", "{}"}},
              "The weather.");
  expect_said(ToolForm::function_gemma,
              "<start_function_call>call:weather{city:<escape>Ulm<escape>,units:<escape><|\"|><escape>}<end_function_call>", "",
              {{"weather", R"({"city":"Ulm","units":"<|\"|>"})"}});
  expect_said(ToolForm::tool_code, "Sure.\n```tool_code\n[add(a=1)]\n```", "Sure.", {{"add", R"({"a":1})"}});
  expect_said(ToolForm::tool_code, "[add(a=1, b=2)]", "", {{"add", R"({"a":1,"b":2})"}});
}

TEST(ChatReader, PythonCallsOfLfm2AndOlmo3) {
  expect_said(ToolForm::lfm2, "<|tool_call_start|>[weather(city=\"Ulm\"), add(a=1)]<|tool_call_end|>I look.", "I look.",
              {{"weather", R"({"city":"Ulm"})"}, {"add", R"({"a":1})"}});
  expect_said(ToolForm::olmo3, "<function_calls>\nweather(city='U\\'lm')\nadd(a=1, b=2,)\n</function_calls>", "",
              {{"weather", R"({"city":"U'lm"})"}, {"add", R"({"a":1,"b":2})"}});
}

TEST(ChatReader, Harmony) {
  const ToolForm form = ToolForm::harmony;
  expect_said(form, "<|channel|>analysis<|message|>They greet.<|end|><|start|>assistant<|channel|>final<|message|>Hello!",
              "Hello!", {}, "They greet.");
  expect_said(
      form,
      "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>"
      "assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Ulm\"} <|call|>",
      "I look.", {{"weather", R"({"city":"Ulm"})"}}, "Look.");
  expect_said(form, " to=functions.add<|channel|>commentary json<|message|>{\"a\":1}", "", {{"add", R"({"a":1})"}});
  expect_said(form, "<|channel|>commentary to=functions.rm json<|message|>{}<|call|>",
              "<|channel|>commentary to=functions.rm json<|message|>{}", {});
  expect_said(form, "<|channel|>analysis<|message|>A.<|end|><|start|>assistant<|channel|>analysis<|message|>B.<|end|>", "", {},
              "A.\n\nB.");
  for (const char* text :
       {"Hello there", "<|channel|>final", "<|start|>", "<|start|><|start|>", "{\"a\": 1}", " to", "<|end", "<|chan"})
    expect_said(form, text, text, {});
}

TEST(ChatReader, Reasoning) {
  const ToolForm form = ToolForm::hermes;
  expect_said(form, "<think>\n\n</think>\n\nHello.", "Hello.", {});
  expect_said(form, "\n<think>a < b </thin k></think>Hello.", "Hello.", {}, "a < b </thin k>");
  expect_said(form, "<think>cut of", "", {}, "cut of");
  expect_said(form, "The tag <think> begins it, </think> ends it.", "The tag <think> begins it, </think> ends it.", {});
  expect_said(form, "<thin", "<thin", {});
  ChatReaderOptions begun = options_of(form);
  begun.in_reasoning = true;
  EXPECT_EQ(shown(read_whole("Hm.\n</think>\n\nYes.", begun)), "content: Yes.\nreasoning: Hm.");
  EXPECT_EQ(shown(read_whole("<think>Hm.</think>Yes.", begun)), "content: Yes.\nreasoning: Hm.");
  EXPECT_EQ(shown(read_whole("Hm.", begun)), "content: \nreasoning: Hm.");
  EXPECT_EQ(shown(read_whole("<think>Hm.</think>Yes.", options_of(form, false))), "content: <think>Hm.</think>Yes.\nreasoning: ");
}

TEST(ChatReader, WhatIsNoCallStaysContent) {
  for (const char* text : {"plain text",
                           "",
                           " \n",
                           "<tool_call>",
                           "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>",
                           "<tool_call>[1,2]</tool_call>",
                           "<tool_call>{\"name\": 7}</tool_call>",
                           "<tool_call>{\"name\": \"add\", \"arguments\": 7}</tool_call>",
                           "</tool_call>",
                           "[TOOL_CALLS]",
                           "[TOOL_CALLS] []",
                           "[TOOL_CALLS][{}]",
                           "[TOOL_CALLS]rm[ARGS]{\"a\":",
                           "{\"name\": \"add\"",
                           "{}",
                           "[]",
                           "[1] says so",
                           "{\"a\":1};",
                           "{\"answer\": 7}",
                           "<function=",
                           "<function=rm></function>",
                           "functools",
                           "<|tool_call>call:rm{}",
                           "<|tool_call>add",
                           "<|python_tag|>print(1)",
                           "```tool_code\nprint(1)\n```",
                           "<tool_call>add",
                           "[add",
                           "add(a=1)"})
    for (const ToolSyntax& syntax : kToolSyntaxes)
      if (syntax.form != ToolForm::harmony) expect_said(syntax.form, text, text, {});
}

TEST(ChatReader, ACallThatBreaksOffIsIncompleteAndTheRestIsContent) {
  const auto expect = [](ToolForm form, const char* text, const char* expected) {
    EXPECT_EQ(shown(read_whole(text, options_of(form))), expected) << text;
  };
  expect(ToolForm::hermes, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": </tool_call> and on",
         "content:  and on\nreasoning: \nadd incomplete {\"a\":");
  expect(ToolForm::hermes, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": tru",
         "content: \nreasoning: \nadd incomplete {\"a\":tru");
  expect(ToolForm::hermes, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"x\\",
         "content: \nreasoning: \nadd incomplete {\"a\":\"x\\");
  expect(ToolForm::llama, "{\"name\": \"add\", \"parameters\": {}} and more", "content:  and more\nreasoning: \nadd {}");
  expect(ToolForm::qwen_coder, "<tool_call><function=add><parameter=a>12", "content: \nreasoning: \nadd incomplete {\"a\":12");
  expect(ToolForm::gemma, "<|tool_call>call:weather{city:<|\"|>Ul", "content: \nreasoning: \nweather incomplete {\"city\":\"Ul");
  expect(ToolForm::harmony, "<|channel|>commentary to=functions.add<|message|>{\"a\": 1, oh<|end|>",
         "content: oh\nreasoning: \nadd incomplete {\"a\":1");
}

TEST(ChatReader, ArgumentsComeAsTheyAreWritten) {
  ChatReader reader(options_of(ToolForm::hermes));
  EXPECT_TRUE(reader.read("<tool_call>{\"name\": \"weather\",").empty());
  const auto parts = reader.read(" \"arguments\": {\"city\": \"U");
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].text, "weather");
  EXPECT_EQ(parts[1].text, "{\"city\":\"U");
  EXPECT_EQ(reader.read("lm\"").front().text, "lm\"");
}

// 10,000 texts that are cut, damaged or put together at random: nothing throws, any pieces give what the whole text gives, and no
// letter is lost.
TEST(ChatReader, DamagedTextsInRandomPieces) {
  const std::vector<std::string> texts = {
      "<think>\nLet me think.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\", "
      "\"days\": 3}}\n"
      "</tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1.5, \"b\": [1, {\"x\": null}]}}\n</tool_call>",
      "<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</"
      "tool_call>",
      "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</"
      "arg_value>\n"
      "</tool_call>\n<tool_call>add</tool_call>",
      "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": "
      "\"Ulm\"}\n```<｜tool▁call▁end｜>\n"
      "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"id\": \"abc\"}, {\"name\": \"weather\", \"arguments\": "
      "\"{}\"}]",
      "[THINK]Hm.[/THINK][TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{\"city\": \"\\u00e9\\n\"}",
      "<|python_tag|>{\"name\": \"add\", \"parameters\": {\"a\": \"\xc3\xa9\"}}; {\"type\": \"function\", \"name\": \"weather\", "
      "\"parameters\": {}}",
      "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]<|/tool_call|> Done.",
      "<|channel>thought\nHm.<channel|>Now <|tool_call>call:weather{city:<|\"|>Ulm<|\"|>,days:3,places:[1,{y:true}]}<tool_call|>",
      "<|tool_call_start|>[weather(city=\"Ulm\", days=2), add(a=[1, 'x'], b=None)]<|tool_call_end|>Well.",
      "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json"
      "<|message|>{\"city\": \"Ulm\"}<|call|><|start|>assistant<|channel|>final<|message|>Rain."};
  const std::vector<std::string> splinters = {"<think>",
                                              "</think>",
                                              "{",
                                              "}",
                                              "\"",
                                              "\\",
                                              "[ARGS]",
                                              " ",
                                              "\n",
                                              "add",
                                              "(a=",
                                              ")",
                                              "]",
                                              "<|\"|>",
                                              "<tool_call>",
                                              "</tool_call>",
                                              "<|message|>",
                                              "<|start|>",
                                              "\xff",
                                              "<function=add>",
                                              ",",
                                              "7",
                                              "<arg_key>",
                                              "</arg_value>",
                                              "<｜tool▁sep｜>",
                                              "```"};
  std::mt19937 random(7);
  const auto at_most = [&](size_t n) { return static_cast<size_t>(random() % (n + 1)); };
  int whole_calls = 0, incomplete = 0;
  for (int trial = 0; trial < 10000; ++trial) {
    std::string text = texts[at_most(texts.size() - 1)];
    for (size_t changes = at_most(3); changes > 0; --changes) {
      const size_t place = at_most(text.size());
      switch (at_most(3)) {
        case 0: text.resize(place); break;
        case 1: text.erase(place, at_most(6)); break;
        case 2: text.insert(place, splinters[at_most(splinters.size() - 1)]); break;
        default: text += texts[at_most(texts.size() - 1)].substr(at_most(20)); break;
      }
    }
    const ToolSyntax& syntax = kToolSyntaxes[at_most(kToolSyntaxes.size() - 1)];
    ChatReaderOptions options = options_of(syntax.form, at_most(3) > 0);
    options.in_reasoning = options.reasoning != nullptr && at_most(4) == 0;
    const Said whole = read_whole(text, options);
    const bool ascii = std::ranges::all_of(text, [](unsigned char c) { return c < 0x80; });
    for (const ToolCall& call : whole.calls) {
      ++(call.complete ? whole_calls : incomplete);
      ASSERT_TRUE(!call.complete || !ascii || OrderedJson::accept(call.arguments)) << call.arguments;
    }
    for (int way = 0; way < 3; ++way) {
      Client client;
      ChatReader reader(options);
      for (size_t at = 0; at < text.size();) {
        const size_t n = 1 + at_most(way == 0 ? 0 : way == 1 ? 6 : 40);
        client.take(reader.read(std::string_view(text).substr(at, n)));
        at += n;
      }
      client.take(reader.end());
      ASSERT_FALSE(client.open) << text;
      ASSERT_EQ(shown(client.said), shown(whole)) << syntax.name << ": " << text;
      ASSERT_EQ(shown(reader.said()), shown(whole)) << syntax.name << ": " << text;
    }
    // Every letter of a sentence is in what was read.
    const std::string all = shown(whole);
    for (const char* word : {"Let me think.", "I look.", "Well.", "Done.", "Rain."})
      ASSERT_TRUE(text.find(word) == std::string::npos || all.find(word) != std::string::npos)
          << syntax.name << ": " << text << "\n"
          << all;
  }
  EXPECT_GT(whole_calls, 1000);
  EXPECT_GT(incomplete, 100);
}

TEST(ToolSyntaxes, AreFoundInTemplates) {
  EXPECT_EQ(tool_form("… <tool_call>\n{\"name\" …"), ToolForm::hermes);
  EXPECT_EQ(tool_form("… <tool_call>\n<function=example> …"), ToolForm::qwen_coder);
  EXPECT_EQ(tool_form("[TOOL_CALLS]"), ToolForm::mistral);
  EXPECT_EQ(tool_form("<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>"), ToolForm::glm);
  EXPECT_EQ(tool_form("'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type']"), ToolForm::deepseek);
  EXPECT_EQ(tool_form("<|start|>assistant<|channel|>final<|message|>"), ToolForm::harmony);
  EXPECT_EQ(tool_form("<|channel>thought <|tool_call>call:"), ToolForm::gemma);
  EXPECT_EQ(tool_form("<|tool_call_start|>"), ToolForm::lfm2);
  EXPECT_EQ(tool_form("{{ messages }}"), ToolForm::llama);
  for (const ToolSyntax& syntax : kToolSyntaxes) EXPECT_EQ(tool_form_named(syntax.name), syntax.form);
  EXPECT_FALSE(tool_form_named("auto"));
  EXPECT_EQ(reasoning_syntax("{{ content.split('</think>')[-1] }}")->end, "</think>");
  EXPECT_EQ(reasoning_syntax("{{ messages }}"), nullptr);
  EXPECT_EQ(*reasoning_syntax_named("none", "</think>"), nullptr);
  EXPECT_EQ((*reasoning_syntax_named("deepseek", ""))->begin, "<think>");
  EXPECT_FALSE(reasoning_syntax_named("thoughts", ""));
}

}  // namespace
}  // namespace vitrine::serve
