#pragma once
// From a request's messages and tools to what the model reads.
#include <optional>
#include <string>
#include <vector>

#include "requests/fields.h"
#include "serve/chat_reader.h"
#include "serve/service.h"
#include "serve/tool_choice.h"

namespace vitrine::serve {

/// A conversation in the model's words.
struct ChatPrompt {
  std::vector<int32_t> ids;
  std::string text;
  ChatReaderOptions reading;     // how the answer is read
  OrderedJson forced = nullptr;  // of which tools the answer must be a call: forced_tools()

  /// Sets `forced`. Constrained decoding writes calls as JSON and without reasoning, and so they are read.
  void force(OrderedJson tools);
  /// What the answer may be where it has a format: a call, if the request leaves that free.
  std::optional<GrammarAlternative> call_beside_format() const {
    return forced.is_null() ? free_call(reading.tools, reading.form) : std::nullopt;
  }
  /// The answer is constrained: it is no reasoning, though the prompt has begun it.
  void constrain() { reading.in_reasoning = false; }
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

/// What a request says in place of the server's template and options; absent: as the server.
struct ChatForm {
  std::optional<std::string> chat_template;
  std::optional<std::string> tool_parser, reasoning_format;
};

/// Renders a conversation. Errors: as read_chat.
ChatPrompt chat_prompt(Service& service, Conversation conversation, const ChatForm& form = {},
                       const std::string& field = "messages");

/// Whether a chat template reads a variable of this name.
bool reads_variable(std::string_view chat_template, std::string_view name);
/// Tells the template (`source`; the model's if absent) of an effort of reasoning: as reasoning_effort, and whether to think at
/// all as enable_thinking. A template that reads neither: `field` is ignored. Errors: ApiError 400 for an unknown effort.
void set_effort(Conversation& conversation, const std::string& effort, Fields& fields, const std::string& field,
                const Service& service, const std::optional<std::string>& source = {});
/// Tells the template whether to think; false: it does not read enable_thinking.
bool set_thinking(Conversation& conversation, bool thinking, const Service& service,
                  const std::optional<std::string>& source = {});

/// Reads a list of tools ({type, function: {name, …}}); null: none. Errors: ApiError naming the tool.
std::vector<std::string> tool_names(const OrderedJson& tools);

}  // namespace vitrine::serve
