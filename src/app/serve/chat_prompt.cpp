#include "serve/chat_prompt.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/fnv.h"
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
        {"reasoning_effort", text,
         "none, minimal, low, medium, high, xhigh or max: reasoning_effort of the template, and enable_thinking, false for none. "
         "Has no effect where the template reads neither."},
        {"reasoning_format", text,
         "How reasoning is marked: auto, none (it stays in the content) or a name. Default: `--reasoning-format`."},
        {"tool_parser", text, "How calls of tools are written: auto or a name. Default: `--tool-parser`."},
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

namespace {

constexpr const char* kReasoningKeys[] = {"reasoning_content", "reasoning", "thinking"};

std::string_view template_source(const Service& service, const std::optional<std::string>& source) {
  if (source) return *source;
  return service.chat() == nullptr ? std::string_view() : std::string_view(service.chat()->source());
}

// Nine letters and digits, as Mistral's templates want them; the same for the same id.
std::string short_id(const std::string& id) {
  if (id.size() == 9 && std::ranges::all_of(id, [](unsigned char c) { return std::isalnum(c) != 0; })) return id;
  std::string made;
  for (uint64_t hash = fnv1a(id); made.size() < 9; hash /= 36) made += "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
  return made;
}

// Reasoning of former turns under the names that the template reads, and ids as it takes them.
void fit_messages(OrderedJson& messages, std::string_view source, ToolForm form) {
  for (OrderedJson& message : messages) {
    std::string reasoning;
    for (const char* key : kReasoningKeys) {
      if (const auto found = message.find(key); found != message.end() && reasoning.empty()) reasoning = *found;
      message.erase(key);
    }
    if (!reasoning.empty())
      for (const char* key : kReasoningKeys)
        if (reads_variable(source, key)) message[key] = reasoning;
    if (form != ToolForm::mistral) continue;
    if (const auto id = message.find("tool_call_id"); id != message.end() && id->is_string()) *id = short_id(*id);
    if (const auto calls = message.find("tool_calls"); calls != message.end())
      for (OrderedJson& call : *calls)
        if (const auto id = call.find("id"); id != call.end() && id->is_string()) *id = short_id(*id);
  }
}

// Some templates append arguments as text.
bool arguments_to_text(OrderedJson& messages) {
  bool any = false;
  for (OrderedJson& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) continue;
    for (OrderedJson& call : *calls)
      if (const auto arguments = call["function"].find("arguments"); arguments != call["function"].end()) {
        *arguments = json_text(*arguments);
        any = true;
      }
  }
  return any;
}

Rendered rendered_chat(const ChatFormat& format, const Conversation& conversation) {
  try {
    return format.rendered(conversation);
  } catch (const InputError&) {
    Conversation other = conversation;
    if (!arguments_to_text(other.messages)) throw;
    try {
      return format.rendered(other);
    } catch (const InputError&) {
    }
    throw;
  }
}

// Whether the text goes on with reasoning: the template has begun it, or what was given of the answer has.
bool begins_reasoning(const Rendered& rendered, std::string_view begun, const ReasoningSyntax& syntax) {
  const auto trimmed = [](std::string_view text) {
    const size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    return text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first);
  };
  if (begun.find(syntax.end) != std::string_view::npos) return false;
  const std::string_view prompt(rendered.text.data(), rendered.text.size() - begun.size());
  return trimmed(prompt).ends_with(syntax.begin) || trimmed(begun).starts_with(syntax.begin);
}

ChatReaderOptions reading_of(const Service& service, const ChatForm& form, std::string_view source) {
  ChatReaderOptions reading;
  const std::string& parser = form.tool_parser ? *form.tool_parser : service.options().tool_parser;
  const std::string& format = form.reasoning_format ? *form.reasoning_format : service.options().reasoning_format;
  const std::optional<ToolForm> named = tool_form_named(parser);
  if (!named && parser != "auto")
    throw invalid("tool_parser", "\"tool_parser\" is \"" + parser + "\"; expected auto, " + tool_form_names());
  reading.form = named.value_or(tool_form(source));
  const std::optional<const ReasoningSyntax*> syntax = reasoning_syntax_named(format, source);
  if (!syntax)
    throw invalid("reasoning_format",
                  "\"reasoning_format\" is \"" + format + "\"; expected auto, none, " + reasoning_format_names());
  reading.reasoning = *syntax;
  reading.harmony = reading.form == ToolForm::harmony && format != "none";
  return reading;
}

}  // namespace

bool reads_variable(std::string_view chat_template, std::string_view name) {
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = chat_template.find(name); at != std::string_view::npos; at = chat_template.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !in_word(chat_template[at - 1])) && (end == chat_template.size() || !in_word(chat_template[end])))
      return true;
  }
  return false;
}

bool set_thinking(Conversation& conversation, bool thinking, const Service& service, const std::optional<std::string>& source) {
  if (!reads_variable(template_source(service, source), "enable_thinking")) return false;
  conversation.variables.emplace("enable_thinking", thinking);  // chat_template_kwargs come first
  return true;
}

void set_effort(Conversation& conversation, const std::string& effort, Fields& fields, const std::string& field,
                const Service& service, const std::optional<std::string>& source) {
  if (!one_of(effort, {"none", "minimal", "low", "medium", "high", "xhigh", "max"}))
    throw invalid(field, "\"" + field + "\" is \"" + effort + "\"; expected none, minimal, low, medium, high, xhigh or max");
  const bool told = set_thinking(conversation, effort != "none", service, source);
  if (reads_variable(template_source(service, source), "reasoning_effort"))
    conversation.variables.emplace("reasoning_effort", effort);
  else if (!told)
    fields.ignore(field);
}

void ChatPrompt::force(OrderedJson tools) {
  forced = std::move(tools);
  if (forced.is_null()) return;
  constrain();
  reading.harmony = false;
  if (reading.form != ToolForm::mistral && reading.form != ToolForm::llama) reading.form = ToolForm::hermes;
}

ChatPrompt chat_prompt(Service& service, Conversation conversation, const ChatForm& form, const std::string& field) {
  const bool tools = !conversation.tools.is_null();
  if (!form.chat_template && service.chat() == nullptr)
    throw ApiError(400, "no_chat_template",
                   "the model " + service.name() + " has no tokenizer, which a conversation needs; use /v1/completions with ids",
                   field);
  if (tools) tool_names(conversation.tools);
  ChatPrompt prompt;
  for (const auto& [name, value] : service.options().template_variables.items())
    conversation.variables.emplace(name, OrderedJson(value));
  try {
    std::optional<ChatFormat> own;
    if (form.chat_template) own.emplace(service.engine(), *form.chat_template, "the request's chat_template");
    const ChatFormat& format = own ? *own : *service.chat();
    if (tools && !(own ? own->reads_tools() : service.chat_reads_tools()))
      throw invalid("tools",
                    service.chat_is_plain() && !own
                        ? "the model has no chat template and does not support tools, so they would be lost; describe them in a "
                          "message, or start the server with --template FILE that supports them"
                        : "the model's chat template does not support tools, so they would be lost; describe them in a message, "
                          "or give a \"chat_template\" that does",
                    "unsupported_parameter");
    prompt.reading = reading_of(service, form, format.source());
    prompt.reading.tools = conversation.tools;
    fit_messages(conversation.messages, format.source(), prompt.reading.form);
    const Rendered rendered = rendered_chat(format, conversation);
    prompt.ids = format.ids_of(rendered);
    prompt.text = rendered.text;
    if (const ReasoningSyntax* syntax = prompt.reading.reasoning)
      prompt.reading.in_reasoning = begins_reasoning(rendered, conversation.begun, *syntax);
    if (prompt.reading.harmony && !conversation.begun.empty()) prompt.reading.harmony = false;  // it goes on with a text
  } catch (const RequestError&) {
    throw;
  } catch (const InputError& e) {
    throw invalid(field, e.what(), "template_error");
  }
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
  const ChatForm form{fields.text("chat_template"), fields.text("tool_parser"), fields.text("reasoning_format")};
  conversation.answer = fields.boolean("add_generation_prompt", true);
  if (const OrderedJson* variables = fields.find("chat_template_kwargs")) {
    for (const char* taken : {"messages", "tools", "add_generation_prompt", "documents"})
      if (variables->contains(taken))
        throw invalid("chat_template_kwargs",
                      "\"chat_template_kwargs\" has \"" + std::string(taken) + "\"; give that as a field of the request");
    conversation.variables = *variables;
  }
  if (const std::optional<std::string> effort = fields.text("reasoning_effort"))
    set_effort(conversation, *effort, fields, "reasoning_effort", service, form.chat_template);
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
  ChatPrompt prompt = chat_prompt(service, conversation, form);
  prompt.force(forced_tools(choice, conversation.tools));
  return prompt;
}

}  // namespace vitrine::serve
