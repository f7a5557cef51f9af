#pragma once
// Calls of tools in generated text. Templates teach models different forms; what does not parse stays text.
#include <string>
#include <string_view>
#include <vector>

#include "jinja/jinja.h"

namespace vitrine::serve {

enum class ToolForm : uint8_t {
  hermes,   // <tool_call>{"name": …, "arguments": {…}}</tool_call>, as often as wanted, in the midst of text (Hermes, Qwen)
  mistral,  // [TOOL_CALLS] [{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]name[ARGS]{…}, behind text
  llama,    // the whole text is {"name": …, "parameters": {…}}, or several of them with ; between, perhaps behind <|python_tag|>
};

/// The form that a chat template teaches.
ToolForm tool_form(std::string_view chat_template);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, an object
};

struct Said {
  std::string content;
  std::vector<ToolCall> calls;
};

/// Splits a text into content and calls of tools that are among `names`. Without a call the content is the text as it is. Never
/// throws.
Said read_tool_calls(const std::string& text, ToolForm form, const std::vector<std::string>& names);

/// How many bytes of a text that still grows are content for certain: those in front of the first place where a call may begin.
size_t content_for_certain(std::string_view text, ToolForm form);

}  // namespace vitrine::serve
