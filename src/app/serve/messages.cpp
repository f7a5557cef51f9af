// POST /v1/messages and /v1/messages/count_tokens: Anthropic's form.
#include <algorithm>

#include "serve/chat_prompt.h"
#include "serve/chat_text.h"
#include "serve/endpoints.h"
#include "serve/grammars.h"
#include "serve/openai_answer.h"
#include "serve/sampling_fields.h"
#include "serve/watch.h"

namespace vitrine::serve {
namespace {

struct MessageRequest {
  std::string id, model;
  ChatPrompt prompt;
  bool one_call = false;
  OrderedJson ignored = nullptr;
  std::shared_ptr<const Watch> watch;
};

OrderedJson message_usage(int64_t input, int64_t cached, int64_t output) {
  return {{"input_tokens", input - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", output}};
}

class MessageAnswer final : public Answer {
 public:
  MessageAnswer(Service& service, std::shared_ptr<http::Exchange> exchange, bool streamed, MessageRequest request)
      : Answer(service, std::move(exchange), streamed, ErrorForm::anthropic),
        request_(std::move(request)),
        said_(request_.prompt, request_.one_call) {}

 private:
  OrderedJson whole() override {
    Choice& choice = choices().front();
    const Said said = said_.said(choice);
    OrderedJson json = message_json(choice);
    if (!said.reasoning.empty())
      json["content"].push_back({{"type", "thinking"}, {"thinking", said.reasoning}, {"signature", ""}});
    if (!said.content.empty() || said.calls.empty()) json["content"].push_back({{"type", "text"}, {"text", said.content}});
    for (const ToolCall& call : said.calls) {
      OrderedJson use = use_json(call.name);
      use["input"] = arguments_object(call);
      json["content"].push_back(std::move(use));
    }
    json["stop_reason"] = stop_reason(choice, said);
    json["stop_sequence"] = choice.end.stop_string ? OrderedJson(*choice.end.stop_string) : OrderedJson(nullptr);
    json["usage"] = message_usage(usage().prompt_tokens, usage().cached_tokens, usage().completion_tokens);
    return json;
  }

  std::string whole_text() override { return request_.watch->text_with_values(whole(), choices().front()); }

  void on_prompt(Choice& choice, const PromptEvent& event) override { begin(choice, event.cached); }

  void on_token(Choice& choice) override {
    begin(choice, 0);
    for (const SaidPart& part : said_.read(choice)) send_part(part);
  }

  void on_end(Choice& choice) override {
    begin(choice, 0);
    for (const SaidPart& part : said_.read(choice)) send_part(part);
    const Said said = said_.said(choice);
    if (said.content.empty() && said.calls.empty()) open_block("text");  // an answer has a block, if an empty one
    close_block();
    OrderedJson delta = {{"stop_reason", stop_reason(choice, said)},
                         {"stop_sequence", choice.end.stop_string ? OrderedJson(*choice.end.stop_string) : OrderedJson(nullptr)}};
    const OrderedJson json = {{"type", "message_delta"},
                              {"delta", delta},
                              {"usage", message_usage(usage().prompt_tokens, usage().cached_tokens, usage().completion_tokens)}};
    send_event_text("message_delta", request_.watch->text_with_values(json, choice));
    send_named({{"type", "message_stop"}});
  }

  void on_error(const ApiError& error) override { send_event("error", error_json(error, ErrorForm::anthropic)); }
  std::string ping() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

  OrderedJson message_json(const Choice&) const {
    OrderedJson json = {{"id", request_.id},
                        {"type", "message"},
                        {"role", "assistant"},
                        {"model", request_.model},
                        {"content", OrderedJson::array()},
                        {"stop_reason", nullptr},
                        {"stop_sequence", nullptr}};
    if (!request_.ignored.is_null()) json["ignored_fields"] = request_.ignored;
    return json;
  }

  static const char* stop_reason(const Choice& choice, const Said& said) {
    if (std::string_view(ChatText::finish_reason(choice, said)) == "tool_calls") return "tool_use";
    if (choice.end.end == End::length) return "max_tokens";
    return choice.end.stop_string ? "stop_sequence" : "end_turn";
  }

  OrderedJson use_json(const std::string& name) const {
    return {{"type", "tool_use"}, {"id", said_.call_id("toolu_")}, {"name", name}};
  }

  void begin(Choice& choice, int64_t cached) {
    if (begun_) return;
    begun_ = true;
    OrderedJson message = message_json(choice);
    message["usage"] = message_usage(std::ssize(choice.prompt_ids), cached, 0);
    send_named({{"type", "message_start"}, {"message", message}});
  }

  // A block of this type, if another one is open.
  void open_block(const std::string& type) {
    if (open_ == type) return;
    close_block();
    if (type == "text")
      start_block({{"type", "text"}, {"text", ""}});
    else
      start_block({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
  }

  void start_block(const OrderedJson& block) {
    send_named({{"type", "content_block_start"}, {"index", block_}, {"content_block", block}});
    open_ = block["type"];
  }

  void send_delta(const OrderedJson& delta) {
    send_named({{"type", "content_block_delta"}, {"index", block_}, {"delta", delta}});
  }

  void send_part(const SaidPart& part) {
    switch (part.kind) {
      case SaidPart::Kind::content: open_block("text"); return send_delta({{"type", "text_delta"}, {"text", part.text}});
      case SaidPart::Kind::reasoning:
        open_block("thinking");
        return send_delta({{"type", "thinking_delta"}, {"thinking", part.text}});
      case SaidPart::Kind::call: {
        close_block();
        OrderedJson use = use_json(part.text);
        use["input"] = OrderedJson::object();
        return start_block(use);
      }
      case SaidPart::Kind::arguments: return send_delta({{"type", "input_json_delta"}, {"partial_json", part.text}});
      case SaidPart::Kind::call_end: return close_block();
    }
  }

  void close_block() {
    if (open_.empty()) return;
    if (open_ == "thinking") send_delta({{"type", "signature_delta"}, {"signature", ""}});
    send_named({{"type", "content_block_stop"}, {"index", block_}});
    open_.clear();
    ++block_;
  }

  void send_named(const OrderedJson& json) { send_event(json["type"].get_ref<const std::string&>(), json); }

  const MessageRequest request_;
  ChatText said_;
  bool begun_ = false;
  std::string open_;  // the type of the block that is open
  int block_ = 0;
};

// A string, or blocks of text.
std::string blocks_text(const OrderedJson& content, Fields& fields, const std::string& at) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw invalid(at, at + ": expected a string or a list of blocks", "invalid_type");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string where = at + "[" + std::to_string(i) + "]";
    const OrderedJson& block = content[i];
    if (!block.is_object() || block.value("type", OrderedJson()) != "text" || !block.contains("text") ||
        !block["text"].is_string())
      throw invalid(where, where + ": expected a block {\"type\": \"text\", \"text\": …}; this model reads only text",
                    "unsupported_content");
    fields.ignore_others(block, where, {"type", "text"});
    text += (i > 0 ? "\n" : "") + block["text"].get<std::string>();
  }
  return text;
}

std::string string_in(const OrderedJson& block, const char* key, const std::string& at) {
  if (!block.contains(key) || !block[key].is_string())
    throw invalid(at + "." + key, at + "." + key + ": expected a string", "missing_required_parameter");
  return block[key].get<std::string>();
}

// One message of Anthropic's is one or more of OpenAI's: results of tools are messages of their own.
void add_message(const OrderedJson& message, Fields& fields, const std::string& at, OrderedJson& out) {
  if (!message.is_object()) throw invalid(at, at + ": expected an object", "invalid_type");
  const std::string role = string_in(message, "role", at);
  if (role != "user" && role != "assistant")
    throw invalid(at + ".role", at + ".role: \"" + role + "\" is neither user nor assistant");
  fields.ignore_others(message, at, {"role", "content"});
  if (!message.contains("content")) throw invalid(at + ".content", at + ".content: missing", "missing_required_parameter");
  const OrderedJson& content = message["content"];
  if (content.is_string()) return out.push_back({{"role", role}, {"content", content}});
  if (!content.is_array() || content.empty())
    throw invalid(at + ".content", at + ".content: expected a string or a list of blocks, not an empty one", "invalid_type");
  std::string text, thoughts;
  bool said = false;
  OrderedJson calls = OrderedJson::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const OrderedJson& block = content[i];
    const std::string where = at + ".content[" + std::to_string(i) + "]";
    if (!block.is_object()) throw invalid(where, where + ": expected an object", "invalid_type");
    const std::string type = string_in(block, "type", where);
    if (type == "text") {
      text += (said ? "\n" : "") + blocks_text(OrderedJson::array({block}), fields, where);
      said = true;
    } else if (type == "tool_use" && role == "assistant") {
      fields.ignore_others(block, where, {"type", "id", "name", "input"});
      const auto input = block.find("input");
      if (input == block.end() || !input->is_object())
        throw invalid(where + ".input", where + ".input: expected an object", "invalid_type");
      calls.push_back({{"id", string_in(block, "id", where)},
                       {"type", "function"},
                       {"function", {{"name", string_in(block, "name", where)}, {"arguments", *input}}}});
    } else if (type == "tool_result" && role == "user") {
      fields.ignore_others(block, where, {"type", "tool_use_id", "content"});
      const auto result = block.find("content");
      out.push_back(
          {{"role", "tool"},
           {"content", result == block.end() || result->is_null() ? "" : blocks_text(*result, fields, where + ".content")},
           {"tool_call_id", string_in(block, "tool_use_id", where)}});
    } else if (type == "thinking" && role == "assistant") {
      fields.ignore_others(block, where, {"type", "thinking", "signature"});
      thoughts += string_in(block, "thinking", where);
    } else if (type == "redacted_thinking" && role == "assistant") {
      fields.ignore(where);
    } else {
      throw invalid(where,
                    where + ": a block of the type \"" + type + "\" is not supported in a message of the " + role +
                        "'s; text, thinking, tool_use and tool_result are",
                    "unsupported_content");
    }
  }
  if (!said && calls.empty() && role == "user") return;  // results of tools alone
  OrderedJson read = {{"role", role}, {"content", text}};
  if (!thoughts.empty()) read["reasoning_content"] = thoughts;
  if (!calls.empty()) read["tool_calls"] = calls;
  out.push_back(std::move(read));
}

// {name, description, input_schema} -> {type: function, function: {…}}
OrderedJson read_tools(const OrderedJson& tools, Fields& fields) {
  OrderedJson read = OrderedJson::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const OrderedJson& tool = tools[i];
    const std::string at = "tools[" + std::to_string(i) + "]";
    if (!tool.is_object()) throw invalid(at, at + ": expected an object", "invalid_type");
    const OrderedJson type = tool.value("type", OrderedJson());
    if (!type.is_null() && type != "custom")
      throw invalid(at + ".type", at + ".type: " + json_text(type) + " is a tool of the server's, and this one has none",
                    "unsupported_parameter");
    OrderedJson function = {{"name", string_in(tool, "name", at)}};
    if (tool.contains("description") && !tool["description"].is_null())
      function["description"] = string_in(tool, "description", at);
    if (!tool.contains("input_schema") || !tool["input_schema"].is_object())
      throw invalid(at + ".input_schema", at + ".input_schema: expected an object", "missing_required_parameter");
    function["parameters"] = tool["input_schema"];
    fields.ignore_others(tool, at, {"name", "description", "input_schema", "type"});
    read.push_back({{"type", "function"}, {"function", function}});
  }
  return read;
}

// {type: enabled, disabled or adaptive, budget_tokens}
void read_thinking(Fields& fields, Conversation& conversation, const Service& service) {
  const OrderedJson* thinking = fields.find("thinking");
  if (thinking == nullptr) return;
  const OrderedJson type = thinking->value("type", OrderedJson());
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    throw invalid("thinking.type", "thinking.type: " + json_text(type) + "; expected enabled, adaptive or disabled");
  if (!set_thinking(conversation, type != "disabled", service)) fields.ignore("thinking");
  fields.ignore_others(*thinking, "thinking", {"type", "budget_tokens"});
}

struct MessagePrompt {
  ChatPrompt chat;
  bool one_call = false;
  bool goes_on = false;  // the last message is the assistant's, and the answer goes on with it
};

MessagePrompt read_conversation(Fields& fields, Service& service) {
  MessagePrompt prompt;
  Conversation conversation;
  if (const OrderedJson* system = fields.find("system"))
    conversation.messages.push_back({{"role", "system"}, {"content", blocks_text(*system, fields, "system")}});
  const OrderedJson& messages = *fields.find("messages");
  if (messages.empty()) throw invalid("messages", "messages: at least one is needed");
  for (size_t i = 0; i < messages.size(); ++i)
    add_message(messages[i], fields, "messages[" + std::to_string(i) + "]", conversation.messages);
  const OrderedJson& last = conversation.messages.back();
  if (last["role"] == "assistant") {
    if (last.contains("tool_calls")) throw invalid("messages", "messages: the last one calls a tool; its result must follow");
    prompt.goes_on = true;
    conversation.begun = last["content"].get<std::string>();
    conversation.messages.erase(conversation.messages.size() - 1);
    if (conversation.messages.empty()) throw invalid("messages", "messages: there is none before the assistant's");
  }
  const OrderedJson* tools = fields.find("tools");
  if (tools != nullptr && !tools->empty()) conversation.tools = read_tools(*tools, fields);
  ToolChoice forced;
  if (const OrderedJson* choice = fields.find("tool_choice")) {
    const OrderedJson type = choice->value("type", OrderedJson());
    refuse_others(*choice, "tool_choice", {"type", "name", "disable_parallel_tool_use"});
    if (type == "none") {
      conversation.tools = nullptr;
    } else if (type == "any" || type == "tool") {
      OrderedJson named = "required";
      if (type == "tool") named = OrderedJson::object({{"name", choice->value("name", OrderedJson())}});
      forced = read_tool_choice(&named, tool_names(conversation.tools));
    } else if (type != "auto") {
      throw invalid("tool_choice.type", "tool_choice.type: expected auto, any, tool or none");
    }
    const OrderedJson once = choice->value("disable_parallel_tool_use", OrderedJson(false));
    if (!once.is_boolean())
      throw invalid("tool_choice.disable_parallel_tool_use", "tool_choice.disable_parallel_tool_use: expected true or false",
                    "invalid_type");
    prompt.one_call = once.get<bool>();
  }
  read_thinking(fields, conversation, service);
  prompt.chat = chat_prompt(service, conversation);
  prompt.chat.force(forced_tools(forced, conversation.tools));
  return prompt;
}

std::vector<Field> prompt_fields() {
  using namespace type;
  Field model{"model", text, "The model's name or an alias."},
      list_of{"messages", list,
              "The conversation: role user or assistant, content a string or blocks text, thinking, tool_use, tool_result. If "
              "the last one is the assistant's, the answer continues it."};
  model.required = list_of.required = true;
  return {model,
          list_of,
          {"system", text | list, "The system message."},
          {"tools", list, "{name, description, input_schema}; the chat template must support tools."},
          {"tool_choice", object,
           "{\"type\": \"auto\"}, none, any (the answer is a call of one tool) or tool with name (a call of this one)."},
          {"thinking", object,
           "{\"type\": \"enabled\"}, adaptive or disabled: enable_thinking of the chat template, where it reads that. "
           "`budget_tokens` has no effect."},
          Field::refused("mcp_servers", "this server does not call MCP servers", "[[]]"),
          Field::refused("container", "this server has no containers")};
}

}  // namespace

const std::vector<Field>& message_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    Field most{"max_tokens", integer, "Maximum new tokens.", Use::honored, 1, 1e9};
    most.required = true;
    Field stops{"stop_sequences", texts, "The same as `stop`."};
    stops.same_as = "stop";
    return joined(
        {prompt_fields(),
         {most,
          stops,
          {"output_config", object,
           "{\"format\": {\"type\": \"json_schema\", \"schema\": …}}: the format of the answer. Its other parts have no effect."},
          {"stream", boolean, "The answer is sent as server-sent events. Default: false."}},
         watch_fields(),
         sampling_fields(),
         foreign_fields()});
  }();
  return table;
}

const std::vector<Field>& count_tokens_fields() {
  static const std::vector<Field> table = prompt_fields();
  return table;
}

void messages(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, message_fields(), service.options().strict_fields);
  MessageRequest request;
  request.id = random_id("msg_");
  request.model = service.model_named(fields.text("model"));
  MessagePrompt prompt = read_conversation(fields, service);
  check_room(service, prompt.chat.ids.size(), "messages");
  request.prompt = std::move(prompt.chat);
  request.one_call = prompt.one_call;
  Sampled sampled = read_sampling(fields, service, openai_sampling());
  if (const OrderedJson* output = fields.find("output_config")) {
    fields.ignore_others(*output, "output_config", {"format"});
    if (const auto format = output->find("format"); format != output->end() && !format->is_null())
      sampled.options.constraint =
          only_one(read_format(*format, "output_config.format", service, json_space(fields), request.prompt.call_beside_format()),
                   std::move(sampled.options.constraint), "output_config");
  }
  force_call(sampled, request.prompt.forced, request.prompt.reading.form, service, fields, "stop_sequences");
  if (sampled.options.constraint != nullptr) request.prompt.constrain();
  sampled.options.max_tokens = fields.integer("max_tokens").value_or(0);
  sampled.options.alone = !prompt.goes_on;
  const bool streamed = fields.boolean("stream", false);
  request.watch = std::make_shared<const Watch>(
      fields, service, exchange,
      WatchedTexts{.prompts = {request.prompt.ids}, .max_tokens = sampled.options.max_tokens, .streamed = streamed});
  if (!fields.ignored().empty()) request.ignored = fields.ignored();
  Work work;
  work.prompt = request.prompt.ids;
  work.options = sampled.options;
  work.listener = request.watch->listener(0);
  const auto answer = std::make_shared<MessageAnswer>(service, exchange, streamed, std::move(request));
  answer->add(std::move(work), 0, sampled);
  answer->start();
}

void count_tokens(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, count_tokens_fields(), service.options().strict_fields);
  service.model_named(fields.text("model"));
  const MessagePrompt prompt = read_conversation(fields, service);
  OrderedJson json = {{"input_tokens", prompt.chat.ids.size()}};
  exchange->respond(json_response(std::move(json), fields));
}

}  // namespace vitrine::serve
