// POST /v1/responses: OpenAI's Responses. Nothing is stored: each request holds the whole conversation.
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "serve/chat_prompt.h"
#include "serve/chat_text.h"
#include "serve/endpoints.h"
#include "serve/grammars.h"
#include "serve/openai_answer.h"
#include "serve/sampling_fields.h"

namespace vitrine::serve {
namespace {

struct ResponseRequest {
  OrderedJson head;  // the response without its output
  ChatPrompt prompt;
  bool one_call = false;
};

class ResponseAnswer final : public Answer {
 public:
  ResponseAnswer(Service& service, std::shared_ptr<http::Exchange> exchange, bool streamed, ResponseRequest request)
      : Answer(service, std::move(exchange), streamed),
        request_(std::move(request)),
        said_(request_.prompt, request_.one_call),
        message_id_(random_id("msg_")) {}

 private:
  OrderedJson whole() override {
    const Choice& choice = choices().front();
    const Said said = said_.said(choice);
    if (!said.content.empty() || said.calls.empty()) output_.push_back(message_json("completed", said.content));
    for (const ToolCall& call : said.calls) output_.push_back(call_json(call));
    return finished_json(choice);
  }

  void on_prompt(Choice&, const PromptEvent&) override { begin(); }

  void on_token(Choice& choice) override {
    begin();
    const std::string text = said_.certain(choice);
    if (!text.empty()) send_content(text);
  }

  void on_end(Choice& choice) override {
    begin();
    const Said said = said_.said(choice);
    const std::string rest = said_.rest(choice, said);
    if (!rest.empty()) send_content(rest);
    if (!open_ && said.calls.empty()) open_message();
    if (open_) {
      tell({{"type", "response.output_text.done"},
            {"item_id", message_id_},
            {"output_index", 0},
            {"content_index", 0},
            {"text", said.content},
            {"logprobs", OrderedJson::array()}});
      tell({{"type", "response.content_part.done"},
            {"item_id", message_id_},
            {"output_index", 0},
            {"content_index", 0},
            {"part", part_json(said.content)}});
      output_.push_back(message_json("completed", said.content));
      tell({{"type", "response.output_item.done"}, {"output_index", 0}, {"item", output_.back()}});
    }
    for (const ToolCall& call : said.calls) {
      const OrderedJson item = call_json(call);
      OrderedJson begun = item;
      begun["arguments"] = "";
      begun["status"] = "in_progress";
      const size_t at = output_.size();
      tell({{"type", "response.output_item.added"}, {"output_index", at}, {"item", begun}});
      tell({{"type", "response.function_call_arguments.delta"},
            {"item_id", item["id"]},
            {"output_index", at},
            {"delta", call.arguments}});
      tell({{"type", "response.function_call_arguments.done"},
            {"item_id", item["id"]},
            {"output_index", at},
            {"name", call.name},
            {"arguments", call.arguments}});
      tell({{"type", "response.output_item.done"}, {"output_index", at}, {"item", item}});
      output_.push_back(item);
    }
    const OrderedJson response = finished_json(choice);
    tell({{"type", choice.end.end == End::length ? "response.incomplete" : "response.completed"}, {"response", response}});
  }

  void on_error(const ApiError& error) override {
    const OrderedJson json = error_json(error);
    tell({{"type", "error"}, {"code", json["error"]["code"]}, {"message", error.what()}, {"param", json["error"]["param"]}});
    OrderedJson response = request_.head;
    response["status"] = "failed";
    response["error"] = {{"code", "server_error"}, {"message", error.what()}};
    tell({{"type", "response.failed"}, {"response", response}});
  }

  OrderedJson finished_json(const Choice& choice) {
    OrderedJson json = request_.head;
    const bool cut = choice.end.end == End::length;
    json["status"] = cut ? "incomplete" : "completed";
    if (cut) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    json["output"] = output_;
    const Usage cost = usage();
    json["usage"] = {{"input_tokens", cost.prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", cost.cached_tokens}}},
                     {"output_tokens", cost.completion_tokens},
                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                     {"total_tokens", cost.prompt_tokens + cost.completion_tokens}};
    return json;
  }

  static OrderedJson part_json(const std::string& text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", OrderedJson::array()}, {"logprobs", OrderedJson::array()}};
  }

  OrderedJson message_json(const char* status, const std::optional<std::string>& text) const {
    return {{"type", "message"},
            {"id", message_id_},
            {"status", status},
            {"role", "assistant"},
            {"content", text ? OrderedJson::array({part_json(*text)}) : OrderedJson::array()}};
  }

  static OrderedJson call_json(const ToolCall& call) {
    return {{"type", "function_call"}, {"id", random_id("fc_")},      {"call_id", random_id("call_")},
            {"name", call.name},       {"arguments", call.arguments}, {"status", "completed"}};
  }

  void begin() {
    if (begun_) return;
    begun_ = true;
    tell({{"type", "response.created"}, {"response", request_.head}});
    tell({{"type", "response.in_progress"}, {"response", request_.head}});
  }

  void open_message() {
    open_ = true;
    tell({{"type", "response.output_item.added"}, {"output_index", 0}, {"item", message_json("in_progress", {})}});
    tell({{"type", "response.content_part.added"},
          {"item_id", message_id_},
          {"output_index", 0},
          {"content_index", 0},
          {"part", part_json("")}});
  }

  void send_content(const std::string& text) {
    if (!open_) open_message();
    tell({{"type", "response.output_text.delta"},
          {"item_id", message_id_},
          {"output_index", 0},
          {"content_index", 0},
          {"delta", text},
          {"logprobs", OrderedJson::array()}});
  }

  void tell(OrderedJson json) {
    json["sequence_number"] = sequence_++;
    send_event(json["type"].get<std::string>(), json);
  }

  const ResponseRequest request_;
  ChatText said_;
  const std::string message_id_;
  OrderedJson output_ = OrderedJson::array();
  bool begun_ = false, open_ = false;
  int64_t sequence_ = 0;
};

std::string string_of(const OrderedJson& item, const char* key, const std::string& at) {
  if (!item.contains(key) || !item[key].is_string())
    throw invalid(at + "." + key, "\"" + at + "." + key + "\" is missing; expected a string", "missing_required_parameter");
  return item[key].get<std::string>();
}

// Items of a conversation -> messages in the form of chat completions. Calls that follow each other are one message's.
OrderedJson read_input(const OrderedJson& input, Fields& fields) {
  OrderedJson messages = OrderedJson::array();
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input}});
    return messages;
  }
  for (size_t i = 0; i < input.size(); ++i) {
    const OrderedJson& item = input[i];
    const std::string at = "input[" + std::to_string(i) + "]";
    if (!item.is_object()) throw invalid(at, "\"" + at + "\" is " + kind_of(item) + "; expected an object", "invalid_type");
    const std::string type = item.contains("type") ? string_of(item, "type", at) : "message";
    if (type == "message") {
      OrderedJson message = item;
      for (const char* key : {"type", "id", "status"}) message.erase(key);
      messages.push_back(std::move(message));
    } else if (type == "function_call") {
      if (messages.empty() || messages.back()["role"] != "assistant")
        messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", OrderedJson::array()}});
      OrderedJson& calls = messages.back()["tool_calls"];
      if (calls.is_null()) calls = OrderedJson::array();
      if (!calls.is_array())
        throw invalid(at, "\"" + at + "\" follows a message whose \"tool_calls\" are no list", "invalid_type");
      calls.push_back({{"id", string_of(item, "call_id", at)},
                       {"type", "function"},
                       {"function", {{"name", string_of(item, "name", at)}, {"arguments", string_of(item, "arguments", at)}}}});
    } else if (type == "function_call_output") {
      if (!item.contains("output"))
        throw invalid(at + ".output", "\"" + at + ".output\" is missing", "missing_required_parameter");
      messages.push_back({{"role", "tool"}, {"content", item["output"]}, {"tool_call_id", string_of(item, "call_id", at)}});
    } else if (type == "reasoning") {
      fields.ignore(at);
    } else {
      throw invalid(
          at, "\"" + at + "\" is of the type \"" + type + "\"; message, function_call and function_call_output are supported",
          "unsupported_content");
    }
  }
  return messages;
}

// {type: function, name, description, parameters} -> {type: function, function: {…}}
OrderedJson read_flat_tools(const OrderedJson& tools, Fields& fields) {
  OrderedJson read = OrderedJson::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const OrderedJson& tool = tools[i];
    const std::string at = "tools[" + std::to_string(i) + "]";
    if (!tool.is_object()) throw invalid(at, "\"" + at + "\" is " + kind_of(tool) + "; expected an object", "invalid_type");
    if (tool.value("type", OrderedJson()) != "function")
      throw invalid(at + ".type",
                    "\"" + at + ".type\" is " + json_text(tool.value("type", OrderedJson())) + "; only functions can be called",
                    "unsupported_parameter");
    OrderedJson function = {{"name", string_of(tool, "name", at)}};
    for (const char* key : {"description", "parameters"})
      if (tool.contains(key) && !tool[key].is_null()) function[key] = tool[key];
    fields.ignore_others(tool, at, {"type", "name", "description", "parameters"});
    read.push_back({{"type", "function"}, {"function", function}});
  }
  return read;
}

// text.format as the answer tells it again.
OrderedJson read_text_format(Fields& fields) {
  const OrderedJson* text = fields.find("text");
  if (text != nullptr) fields.ignore_others(*text, "text", {"format"});
  const OrderedJson format = text == nullptr ? OrderedJson() : text->value("format", OrderedJson());
  if (format.is_null()) return {{"type", "text"}};
  if (!format.is_object())
    throw invalid("text.format", "\"text.format\" is " + kind_of(format) + "; expected an object", "invalid_type");
  return format;
}

}  // namespace

const std::vector<Field>& response_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    Field input{"input", text | list, "The input: a string, or a list of items message, function_call, function_call_output."};
    input.required = true;
    return joined(
        {{model_field(),
          input,
          {"instructions", text, "A system message before the input."},
          {"max_output_tokens", integer, "Maximum new tokens; absent: until the context is full.", Use::honored, 1, 1e9},
          {"stream", boolean, "The answer is sent as server-sent events. Default: false."},
          {"tools", list, "{\"type\": \"function\", name, description, parameters}; the chat template must support tools."},
          {"tool_choice", text | object,
           "none, auto (the default), required (the answer is a call of one tool) or {\"type\": \"function\", \"name\": …}."},
          {"parallel_tool_calls", boolean, "false: only the first of several calls is used. Default: true."},
          {"text", object,
           "{\"format\": {\"type\": \"text\"}}, json_object, or json_schema with name and schema: the format of the answer."}},
         sampling_fields(),
         foreign_fields(),
         {Field::refused("previous_response_id", "nothing is stored; send the whole conversation as input"),
          Field::refused("conversation", "nothing is stored; send the whole conversation as input"),
          Field::refused("background", "answers are made while the client waits", "[false]"),
          Field::refused("prompt", "no prompts are stored here; send input"),
          Field::refused("truncation", "prompts are never truncated", "[\"disabled\"]"),
          Field::refused("top_logprobs", "use /v1/chat/completions with logprobs", "[0]"),
          Field::refused("max_tool_calls", "this server does not call tools itself"),
          Field::ignored("include", "There is nothing further to include."),
          Field::ignored("reasoning", "Has no effect; templates use the model's own setting."),
          Field::ignored("stream_options", "Events have no obfuscation; the usage is always included.")}});
  }();
  return table;
}

void responses(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, response_fields(), service.options().strict_fields);
  const std::string model = service.model_named(fields.text("model"));
  Conversation conversation;
  const std::optional<std::string> instructions = fields.text("instructions");
  OrderedJson messages = read_input(*fields.find("input"), fields);
  if (instructions) messages.insert(messages.begin(), OrderedJson{{"role", "system"}, {"content", *instructions}});
  conversation.messages = read_messages(messages, fields, "input");
  const OrderedJson* tools = fields.find("tools");
  const OrderedJson* choice = fields.find("tool_choice");
  if (tools != nullptr && !tools->empty()) conversation.tools = read_flat_tools(*tools, fields);
  const ToolChoice chosen = read_tool_choice(choice, tool_names(conversation.tools));
  if (!chosen.told) conversation.tools = nullptr;
  const bool parallel = fields.boolean("parallel_tool_calls", true);
  const std::optional<int64_t> most = fields.integer("max_output_tokens");
  const bool streamed = fields.boolean("stream", false);
  Sampled sampled = read_sampling(fields, service, openai_sampling());
  const OrderedJson format = read_text_format(fields);
  sampled.options.constraint =
      only_one(read_format(format, "text.format", service), std::move(sampled.options.constraint), "text.format");
  sampled.options.max_tokens = most.value_or(INT32_MAX);
  sampled.options.alone = true;

  ResponseRequest request;
  request.one_call = !parallel;
  request.prompt = chat_prompt(service, conversation, {}, "input");
  check_room(service, request.prompt.ids.size(), "input");
  force_call(sampled, forced_tools(chosen, conversation.tools), request.prompt.form, service, fields);
  request.head = {{"id", random_id("resp_")},
                  {"object", "response"},
                  {"created_at", std::time(nullptr)},
                  {"status", "in_progress"},
                  {"error", nullptr},
                  {"incomplete_details", nullptr},
                  {"instructions", instructions ? OrderedJson(*instructions) : OrderedJson(nullptr)},
                  {"max_output_tokens", most ? OrderedJson(*most) : OrderedJson(nullptr)},
                  {"model", model},
                  {"output", OrderedJson::array()},
                  {"parallel_tool_calls", parallel},
                  {"previous_response_id", nullptr},
                  {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                  {"store", false},
                  {"temperature", sampled.options.sampling.temperature.value_or(1)},
                  {"text", {{"format", format}}},
                  {"tool_choice", choice == nullptr ? OrderedJson("auto") : *choice},
                  {"tools", tools == nullptr ? OrderedJson::array() : *tools},
                  {"top_p", sampled.options.sampling.top_p.value_or(1)},
                  {"truncation", "disabled"},
                  {"usage", nullptr},
                  {"metadata", OrderedJson::object()}};
  fields.add_ignored(request.head);
  Work work;
  work.prompt = request.prompt.ids;
  work.options = sampled.options;
  work.adapters = sampled.adapters;
  work.prefix_scope = sampled.cache_salt;
  const auto answer = std::make_shared<ResponseAnswer>(service, exchange, streamed, std::move(request));
  answer->add(std::move(work), 0, sampled.include_stop);
  answer->start();
}

}  // namespace vitrine::serve
