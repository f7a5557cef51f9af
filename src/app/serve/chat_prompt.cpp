#include "serve/chat_prompt.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace vitrine::serve {
namespace {

bool one_of(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* w) { return word == w; });
}

std::string place(const std::string& field, size_t i) { return field + "[" + std::to_string(i) + "]"; }

// A string, or parts of text.
std::string content_text(const OrderedJson& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    throw invalid(where, "\"" + where + "\" is " + kind_of(content) + "; expected a string or a list of parts", "invalid_type");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const OrderedJson& part = content[i];
    const std::string at = place(where, i);
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
      throw invalid(at, "\"" + at + "\" is no part; expected {\"type\": \"text\", \"text\": …}", "invalid_type");
    const std::string type = part["type"].get<std::string>();
    const char* key = type == "refusal" ? "refusal" : "text";
    if (!one_of(type, {"text", "input_text", "output_text", "refusal"}))
      throw invalid(at, "\"" + at + "\" is of the type \"" + type + "\"; this model reads only text", "unsupported_content");
    if (!part.contains(key) || !part[key].is_string())
      throw invalid(at, "\"" + at + "\" has no string \"" + key + "\"", "invalid_type");
    if (i > 0) text += '\n';
    text += part[key].get_ref<const std::string&>();
  }
  return text;
}

// [{id, type, function: {name, arguments: "{…}"}}]; arguments become objects, which templates print.
OrderedJson tool_calls(const OrderedJson& calls, const std::string& where) {
  if (!calls.is_array()) throw invalid(where, "\"" + where + "\" is " + kind_of(calls) + "; expected a list", "invalid_type");
  OrderedJson read = OrderedJson::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string at = place(where, i);
    OrderedJson call = calls[i];
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object() || !call["function"].contains("name") ||
        !call["function"]["name"].is_string())
      throw invalid(
          at,
          "\"" + at +
              "\" is no call; expected {\"id\": …, \"type\": \"function\", \"function\": {\"name\": …, \"arguments\": …}}",
          "invalid_type");
    OrderedJson& function = call["function"];
    if (function.contains("arguments") && function["arguments"].is_string()) {
      const std::string text = function["arguments"].get<std::string>();
      try {
        function["arguments"] = text.empty() ? OrderedJson::object() : parse_ordered_json(text, at + ".function.arguments");
      } catch (const InputError& e) {
        throw invalid(at + ".function.arguments", e.what());
      }
    }
    read.push_back(std::move(call));
  }
  return read;
}

OrderedJson read_message(const OrderedJson& message, Fields& fields, const std::string& at) {
  if (!message.is_object()) throw invalid(at, "\"" + at + "\" is " + kind_of(message) + "; expected an object", "invalid_type");
  if (!message.contains("role") || !message["role"].is_string())
    throw invalid(at + ".role", "\"" + at + ".role\" is missing; expected system, developer, user, assistant or tool",
                  "missing_required_parameter");
  std::string role = message["role"].get<std::string>();
  if (!one_of(role, {"system", "developer", "user", "assistant", "tool"}))
    throw invalid(at + ".role", "\"" + at + ".role\" is \"" + role + "\"; expected system, developer, user, assistant or tool");
  OrderedJson read = {{"role", role == "developer" ? "system" : role}};
  read["content"] = "";
  bool said = false;
  for (const auto& [key, value] : message.items()) {
    if (key == "role" || value.is_null()) continue;
    if (key == "content") {
      read["content"] = content_text(value, at + ".content");
      said = true;
    } else if (key == "tool_calls") {
      if (value.is_array() && value.empty()) continue;
      read["tool_calls"] = tool_calls(value, at + ".tool_calls");
      said = true;
    } else if (one_of(key, {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"})) {
      if (!value.is_string())
        throw invalid(at + "." + key, "\"" + at + "." + key + "\" is " + kind_of(value) + "; expected a string", "invalid_type");
      read[key] = value;
    } else if (one_of(key, {"audio", "function_call"})) {
      throw invalid(at + "." + key, "\"" + at + "." + key + "\" is not supported; text and tool_calls are",
                    "unsupported_parameter");
    } else {
      fields.ignore(at + "." + key);
    }
  }
  if (!said && role != "assistant")
    throw invalid(at + ".content", "\"" + at + ".content\" is missing; expected a string or a list of parts",
                  "missing_required_parameter");
  return read;
}

}  // namespace

const std::vector<Field>& conversation_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    Field messages{"messages", list,
                   "The conversation: objects with role (system, developer, user, assistant, tool) and content (a string, or "
                   "parts of text). Control tokens spelled in content stay text."};
    messages.required = true;
    return std::vector<Field>{
        messages,
        {"tools", list,
         "Functions that the model may call: {\"type\": \"function\", \"function\": {name, description, parameters}}. The "
         "chat template must support tools."},
        {"tool_choice", text | object,
         "none, auto (the default), required (the answer is a call of one tool), or {\"type\": \"function\", \"function\": "
         "{\"name\": …}} (a call of this one). Forced arguments follow the tool's schema; stop strings do not apply to them."},
        {"add_generation_prompt", boolean, "Start the assistant's next message. Default: true."},
        {"continue_final_message", boolean, "Continue the last message, which must be the assistant's. Default: false."},
        {"chat_template", text, "A Jinja template instead of the model's."},
        {"chat_template_kwargs", object, "Additional variables for the template, such as {\"enable_thinking\": false}."},
    };
  }();
  return table;
}

OrderedJson read_messages(const OrderedJson& messages, Fields& fields, const std::string& field) {
  if (messages.empty()) throw invalid(field, "\"" + field + "\" is an empty list; expected at least one message");
  OrderedJson read = OrderedJson::array();
  for (size_t i = 0; i < messages.size(); ++i) read.push_back(read_message(messages[i], fields, place(field, i)));
  return read;
}

std::vector<std::string> tool_names(const OrderedJson& tools) {
  std::vector<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i) {
    const OrderedJson& tool = tools[i];
    const std::string at = place("tools", i);
    if (!tool.is_object()) throw invalid(at, "\"" + at + "\" is " + kind_of(tool) + "; expected an object", "invalid_type");
    if (tool.contains("type") && tool["type"] != "function")
      throw invalid(at + ".type", "\"" + at + ".type\" is " + json_text(tool["type"]) + "; only functions can be called");
    if (!tool.contains("function") || !tool["function"].is_object() || !tool["function"].contains("name") ||
        !tool["function"]["name"].is_string() || tool["function"]["name"].get_ref<const std::string&>().empty())
      throw invalid(at + ".function", "\"" + at + "\" has no function with a name", "missing_required_parameter");
    names.push_back(tool["function"]["name"].get<std::string>());
  }
  return names;
}

ChatPrompt chat_prompt(Service& service, const Conversation& conversation, const std::optional<std::string>& source,
                       const std::string& field) {
  const bool tools = !conversation.tools.is_null();
  if (!source && service.chat() == nullptr)
    throw ApiError(400, "no_chat_template",
                   "the model " + service.name() + " has no tokenizer, which a conversation needs; use /v1/completions with ids",
                   field);
  ChatPrompt prompt;
  try {
    std::optional<ChatFormat> own;
    if (source) own.emplace(service.engine(), *source, "the request's chat_template");
    const ChatFormat& format = own ? *own : *service.chat();
    if (tools && !(own ? own->reads_tools() : service.chat_reads_tools()))
      throw invalid("tools",
                    service.chat_is_plain() && !own
                        ? "the model has no chat template and does not support tools, so they would be lost; describe them in a "
                          "message, or start the server with --template FILE that supports them"
                        : "the model's chat template does not support tools, so they would be lost; describe them in a message, "
                          "or give a \"chat_template\" that does",
                    "unsupported_parameter");
    const Rendered rendered = format.rendered(conversation);
    prompt.ids = format.ids_of(rendered);
    prompt.text = rendered.text;
    prompt.form = tool_form(format.source());
  } catch (const RequestError&) {
    throw;
  } catch (const InputError& e) {
    throw invalid(field, e.what(), "template_error");
  }
  if (tools) prompt.tools = tool_names(conversation.tools);
  return prompt;
}

ChatPrompt read_chat(Fields& fields, Service& service) {
  Conversation conversation;
  conversation.messages = read_messages(*fields.find("messages"), fields);
  const OrderedJson* tools = fields.find("tools");
  const std::vector<std::string> names = tools == nullptr ? std::vector<std::string>() : tool_names(*tools);
  const ToolChoice choice = read_tool_choice(fields.find("tool_choice"), names);
  if (choice.told) conversation.tools = *tools;
  const bool on = fields.boolean("continue_final_message", false);
  const std::optional<std::string> source = fields.text("chat_template");
  conversation.answer = fields.boolean("add_generation_prompt", true);
  if (const OrderedJson* variables = fields.find("chat_template_kwargs")) {
    for (const char* taken : {"messages", "tools", "add_generation_prompt", "documents"})
      if (variables->contains(taken))
        throw invalid("chat_template_kwargs",
                      "\"chat_template_kwargs\" has \"" + std::string(taken) + "\"; give that as a field of the request");
    conversation.variables = *variables;
  }
  if (on) {
    if (fields.has("add_generation_prompt") && conversation.answer)
      throw invalid("continue_final_message",
                    "\"continue_final_message\" and \"add_generation_prompt\" are both true; the answer either continues the "
                    "last message or begins a new one");
    const OrderedJson& last = conversation.messages.back();
    if (last["role"] != "assistant" || last.contains("tool_calls"))
      throw invalid("continue_final_message",
                    "\"continue_final_message\" is true, and the last message is not a text of the assistant's");
    conversation.begun = last["content"].get<std::string>();
    conversation.messages.erase(conversation.messages.size() - 1);
    conversation.answer = true;
    if (conversation.messages.empty()) throw invalid("messages", "there is no message before the one to continue");
  }
  ChatPrompt prompt = chat_prompt(service, conversation, source);
  prompt.forced = forced_tools(choice, conversation.tools);
  return prompt;
}

}  // namespace vitrine::serve
