// Calls of tools in generated text: what parses is a call, all else stays content, whatever it is.
#include "serve/tool_calls.h"

#include <gtest/gtest.h>

#include <random>

namespace vitrine::serve {
namespace {

const std::vector<std::string> kNames = {"weather", "add"};

void expect_calls(const std::string& text, ToolForm form, const std::string& content,
                  const std::vector<std::pair<std::string, std::string>>& calls) {
  const Said said = read_tool_calls(text, form, kNames);
  EXPECT_EQ(said.content, content) << text;
  ASSERT_EQ(said.calls.size(), calls.size()) << text;
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(said.calls[i].name, calls[i].first);
    EXPECT_EQ(said.calls[i].arguments, calls[i].second);
  }
}

TEST(ToolCalls, Hermes) {
  const ToolForm form = ToolForm::hermes;
  expect_calls("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>", form, "",
               {{"weather", R"({"city":"Ulm"})"}});
  expect_calls(
      "Let me "
      "see.\n\n<tool_call>{\"name\":\"add\",\"arguments\":{\"b\":1,\"a\":2}}</tool_call>\n<tool_call>{\"name\":\"weather\"}</"
      "tool_call>",
      form, "Let me see.", {{"add", R"({"b":1,"a":2})"}, {"weather", "{}"}});
  expect_calls("<tool_call>{\"name\":\"add\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>", form, "", {{"add", R"({"a":1})"}});
  expect_calls("<tool_call>{\"name\":\"add\",\"arguments\":{}}", form, "", {{"add", "{}"}});  // the end was not written
  expect_calls("<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":\"</tool_call>\"}}</tool_call> So.", form, " So.",
               {{"add", R"({"a":"</tool_call>"})"}});
}

TEST(ToolCalls, WhatDoesNotParseStaysContent) {
  for (const char* text :
       {"plain text", "", "<tool_call>", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": </tool_call> and on",
        "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>", "<tool_call>[1,2]</tool_call>",
        "<tool_call>{\"name\": 7}</tool_call>", "<tool_call>{\"name\": \"add\", \"arguments\": 7}</tool_call>", "</tool_call>",
        "[TOOL_CALLS]", "[TOOL_CALLS] []", "[TOOL_CALLS][{}]", "[TOOL_CALLS]add[ARGS]{\"a\":", "{\"name\": \"add\"", "{}",
        "{\"name\": \"add\", \"parameters\": {}} and more", "[]", "{\"a\":1};"})
    for (const ToolForm form : {ToolForm::hermes, ToolForm::mistral, ToolForm::llama}) expect_calls(text, form, text, {});
}

TEST(ToolCalls, Mistral) {
  const ToolForm form = ToolForm::mistral;
  expect_calls(
      "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"weather\", \"arguments\": {}, \"id\": \"x\"}]",
      form, "", {{"add", R"({"a":1})"}, {"weather", "{}"}});
  expect_calls("Well: [TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]weather{\"city\": \"[}\"}", form,
               "Well:", {{"add", R"({"a":1})"}, {"weather", R"({"city":"[}"})"}});
}

TEST(ToolCalls, Llama) {
  const ToolForm form = ToolForm::llama;
  expect_calls("{\"name\": \"add\", \"parameters\": {\"a\": 1}}", form, "", {{"add", R"({"a":1})"}});
  expect_calls("<|python_tag|>{\"name\": \"add\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": {}}", form, "",
               {{"add", "{}"}, {"weather", "{}"}});
}

// What is told early is what is told at the end, wherever a text is cut; and nothing throws.
TEST(ToolCalls, ContentThatIsCertainIsABeginningOfTheContent) {
  const std::vector<std::string> parts = {"<tool_call>",
                                          "</tool_call>",
                                          "{\"name\":\"add\",\"arguments\":{}}",
                                          " ",
                                          "\n",
                                          "text",
                                          "<tool",
                                          "[TOOL_CALLS]",
                                          "[{\"name\":\"add\",\"arguments\":{\"a\":[1]}}]",
                                          "{",
                                          "}",
                                          "\"",
                                          "\\",
                                          "[ARGS]",
                                          "add",
                                          ";",
                                          "<|python_tag|>",
                                          "\xc3\xa9",
                                          "\xff",
                                          "[TOOL"};
  std::mt19937 random(7);
  int with_calls = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string text;
    for (size_t n = random() % 8; n > 0; --n) text += parts[random() % parts.size()];
    for (const ToolForm form : {ToolForm::hermes, ToolForm::mistral, ToolForm::llama}) {
      const Said said = read_tool_calls(text, form, kNames);
      with_calls += said.calls.empty() ? 0 : 1;
      size_t before = 0;
      for (size_t n = 0; n <= text.size(); ++n) {
        const size_t sure = content_for_certain(std::string_view(text).substr(0, n), form);
        ASSERT_LE(sure, n);
        before = std::max(before, sure);
        ASSERT_EQ(said.content.substr(0, before), text.substr(0, before)) << text << " at " << n;
      }
    }
  }
  EXPECT_GT(with_calls, 100);
}

}  // namespace
}  // namespace vitrine::serve
