#pragma once
// From a request's messages and tools to what the model reads.
#include <optional>
#include <string>
#include <vector>

#include "requests/fields.h"
#include "serve/service.h"
#include "serve/tool_calls.h"
#include "serve/tool_choice.h"

namespace vitrine::serve {

/// A conversation in the model's words.
struct ChatPrompt {
  std::vector<int32_t> ids;
  std::string text;
  std::vector<std::string> tools;  // names of those that may be called
  ToolForm form = ToolForm::hermes;
  OrderedJson forced = nullptr;  // of which of them the answer must be a call: forced_tools()
};

/// messages, tools and what says how they are written: of every endpoint that reads a conversation in OpenAI's form.
const std::vector<Field>& conversation_fields();

/// Checks `messages` in OpenAI's form and gives them as templates expect them: content as one string (parts of text are joined
/// by line ends), arguments of tool calls as objects, "developer" as "system". Keys that are not known are named as ignored.
/// Errors: ApiError naming the message.
OrderedJson read_messages(const OrderedJson& messages, Fields& fields, const std::string& field = "messages");

/// Reads conversation_fields(). Errors: ApiError 400 for messages in a wrong form, for what the template refuses, in its words,
/// for tools where the template knows none. Whether the context holds the prompt is for those to check who run it.
ChatPrompt read_chat(Fields& fields, Service& service);

/// Renders a conversation, with `source` in the place of the model's template. Errors: as read_chat.
ChatPrompt chat_prompt(Service& service, const Conversation& conversation, const std::optional<std::string>& source = {},
                       const std::string& field = "messages");

/// Reads a list of tools ({type, function: {name, …}}); null: none. Errors: ApiError naming the tool.
std::vector<std::string> tool_names(const OrderedJson& tools);

}  // namespace vitrine::serve
