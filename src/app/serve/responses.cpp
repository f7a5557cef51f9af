// POST /v1/responses and /v1/responses/input_tokens: OpenAI's Responses. Nothing is stored: each request holds the whole
// conversation.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "serve/chat_prompt.h"
#include "serve/chat_text.h"
#include "serve/endpoints.h"
#include "serve/grammars.h"
#include "serve/openai_answer.h"
#include "serve/sampling_fields.h"
#include "serve/watch.h"

namespace vitrine::serve {
namespace {

struct ResponseRequest {
  OrderedJson head;  // the response without its output
  ChatPrompt prompt;
  bool one_call = false;
  std::shared_ptr<const Watch> watch;
};

class ResponseAnswer final : public Answer {
 public:
  ResponseAnswer(Service& service, std::shared_ptr<http::Exchange> exchange, bool streamed, ResponseRequest request)
      : Answer(service, std::move(exchange), streamed), request_(std::move(request)), said_(request_.prompt, request_.one_call) {}

 private:
  OrderedJson whole() override {
    const Choice& choice = choices().front();
    for (const SaidPart& part : said_.read(choice)) take_part(part);
    end_output(choice);
    return finished_json(choice);
  }

  std::string whole_text() override { return request_.watch->text_with_values(whole(), choices().front()); }

  void on_prompt(Choice&, const PromptEvent&) override { begin(); }

  void on_token(Choice& choice) override {
    begin();
    for (const SaidPart& part : said_.read(choice)) take_part(part);
  }

  void on_end(Choice& choice) override {
    begin();
    for (const SaidPart& part : said_.read(choice)) take_part(part);
    end_output(choice);
    const std::string type = choice.end.end == End::length ? "response.incomplete" : "response.completed";
    const std::string response = request_.watch->text_with_values(finished_json(choice), choice);
    send_event_text(type, with_member({{"type", type}, {"sequence_number", sequence_++}}, "response", response));
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
                     {"output_tokens_details", {{"reasoning_tokens", said_.reasoning_tokens()}}},
                     {"total_tokens", cost.prompt_tokens + cost.completion_tokens}};
    return json;
  }

  void begin() {
    if (begun_) return;
    begun_ = true;
    tell({{"type", "response.created"}, {"response", request_.head}});
    tell({{"type", "response.in_progress"}, {"response", request_.head}});
  }

  // An event about the item that is open.
  OrderedJson event(const char* type, const OrderedJson& more) const {
    OrderedJson json = {{"type", type}, {"item_id", item_["id"]}, {"output_index", output_.size()}};
    json.update(more);
    return json;
  }

  static OrderedJson part_json(const std::string& type, const std::string& text) {
    if (type == "reasoning") return {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "output_text"}, {"text", text}, {"annotations", OrderedJson::array()}, {"logprobs", OrderedJson::array()}};
  }

  void open_item(OrderedJson item) {
    close_item();
    item_ = std::move(item);
    text_.clear();
    tell({{"type", "response.output_item.added"}, {"output_index", output_.size()}, {"item", item_}});
  }

  // A message or reasoning, if another item is open.
  void open_text(const std::string& type) {
    if (!item_.is_null() && item_["type"] == type) return;
    OrderedJson item = {{"type", type}, {"id", random_id(type == "message" ? "msg_" : "rs_")}, {"status", "in_progress"}};
    if (type == "message")
      item["role"] = "assistant";
    else
      item["summary"] = OrderedJson::array();
    item["content"] = OrderedJson::array();
    open_item(std::move(item));
    tell(event("response.content_part.added", {{"content_index", 0}, {"part", part_json(type, "")}}));
  }

  void take_part(const SaidPart& part) {
    switch (part.kind) {
      case SaidPart::Kind::content:
      case SaidPart::Kind::reasoning: {
        const bool content = part.kind == SaidPart::Kind::content;
        open_text(content ? "message" : "reasoning");
        text_ += part.text;
        OrderedJson delta = event(content ? "response.output_text.delta" : "response.reasoning_text.delta",
                                  {{"content_index", 0}, {"delta", part.text}});
        if (content) delta["logprobs"] = OrderedJson::array();
        return tell(std::move(delta));
      }
      case SaidPart::Kind::call:
        return open_item({{"type", "function_call"},
                          {"id", random_id("fc_")},
                          {"call_id", said_.call_id()},
                          {"name", part.text},
                          {"arguments", ""},
                          {"status", "in_progress"}});
      case SaidPart::Kind::arguments:
        text_ += part.text;
        return tell(event("response.function_call_arguments.delta", {{"delta", part.text}}));
      case SaidPart::Kind::call_end: return close_item(part.complete);
    }
  }

  void close_item(bool complete = true) {
    if (item_.is_null()) return;
    const std::string type = item_["type"];
    item_["status"] = complete ? "completed" : "incomplete";
    if (type == "function_call") {
      item_["arguments"] = text_;
      tell(event("response.function_call_arguments.done", {{"name", item_["name"]}, {"arguments", text_}}));
    } else {
      item_["content"].push_back(part_json(type, text_));
      OrderedJson done = event(type == "message" ? "response.output_text.done" : "response.reasoning_text.done",
                               {{"content_index", 0}, {"text", text_}});
      if (type == "message") done["logprobs"] = OrderedJson::array();
      tell(std::move(done));
      tell(event("response.content_part.done", {{"content_index", 0}, {"part", item_["content"][0]}}));
    }
    tell({{"type", "response.output_item.done"}, {"output_index", output_.size()}, {"item", item_}});
    output_.push_back(std::exchange(item_, nullptr));
  }

  // An answer has a message or a call, if an empty message.
  void end_output(const Choice& choice) {
    const Said said = said_.said(choice);
    if (said.content.empty() && said.calls.empty()) open_text("message");
    close_item();
  }

  void tell(OrderedJson json) {
    if (!streamed()) return;
    json["sequence_number"] = sequence_++;
    send_event(json["type"].get<std::string>(), json);
  }

  const ResponseRequest request_;
  ChatText said_;
  OrderedJson output_ = OrderedJson::array();
  OrderedJson item_ = nullptr;  // of the output, that is open, and its text or arguments
  std::string text_;
  bool begun_ = false;
  int64_t sequence_ = 0;
};

std::string string_of(const OrderedJson& item, const char* key, const std::string& at) {
  if (!item.contains(key) || !item[key].is_string())
    throw invalid(at + "." + key, "\"" + at + "." + key + "\" is missing; expected a string", "missing_required_parameter");
  return item[key].get<std::string>();
}

// {content: [{type: reasoning_text, text}]}, as an answer has it; else the summary.
std::string reasoning_text(const OrderedJson& item) {
  std::string text;
  for (const char* key : {"content", "summary"}) {
    const auto parts = item.find(key);
    if (!text.empty() || parts == item.end() || !parts->is_array()) continue;
    for (const OrderedJson& part : *parts)
      if (part.is_object() && part.contains("text") && part["text"].is_string())
        text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

// Items of a conversation -> messages in the form of chat completions. Calls that follow each other are one message's.
OrderedJson read_input(const OrderedJson& input, Fields& fields) {
  OrderedJson messages = OrderedJson::array();
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input}});
    return messages;
  }
  std::string thoughts;  // of the assistant's message that follows
  const auto think = [&] {
    if (!thoughts.empty() && messages.back()["role"] == "assistant") messages.back()["reasoning_content"] = thoughts;
    thoughts.clear();
  };
  for (size_t i = 0; i < input.size(); ++i) {
    const OrderedJson& item = input[i];
    const std::string at = "input[" + std::to_string(i) + "]";
    if (!item.is_object()) throw invalid(at, "\"" + at + "\" is " + kind_of(item) + "; expected an object", "invalid_type");
    const std::string type = item.contains("type") ? string_of(item, "type", at) : "message";
    if (type == "message") {
      OrderedJson message = item;
      for (const char* key : {"type", "id", "status"}) message.erase(key);
      messages.push_back(std::move(message));
      think();
    } else if (type == "function_call") {
      if (messages.empty() || messages.back()["role"] != "assistant") {
        messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", OrderedJson::array()}});
        think();
      }
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
      thoughts += reasoning_text(item);
      if (thoughts.empty()) fields.ignore(at);
    } else {
      throw invalid(at,
                    "\"" + at + "\" is of the type \"" + type +
                        "\"; message, reasoning, function_call and function_call_output are supported",
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

// What the prompt is made of.
std::vector<Field> input_fields() {
  using namespace type;
  Field input{"input", text | list,
              "The input: a string, or a list of items message, reasoning, function_call, function_call_output."};
  input.required = true;
  return {model_field(),
          input,
          {"instructions", text, "A system message before the input."},
          {"tools", list, "{\"type\": \"function\", name, description, parameters}; the chat template must support tools."},
          {"tool_choice", text | object,
           "none, auto (the default), required (the answer is a call of one tool) or {\"type\": \"function\", \"name\": …}."},
          {"reasoning", object, "{\"effort\": …}: as `reasoning_effort` of chat completions."},
          Field::refused("previous_response_id", "nothing is stored; send the whole conversation as input"),
          Field::refused("conversation", "nothing is stored; send the whole conversation as input"),
          Field::refused("truncation", "prompts are never truncated", "[\"disabled\"]")};
}

struct ResponsePrompt {
  ChatPrompt chat;
  std::optional<std::string> effort;  // of reasoning
};

// Reads input_fields().
ResponsePrompt read_prompt(Fields& fields, Service& service) {
  Conversation conversation;
  const std::optional<std::string> instructions = fields.text("instructions");
  OrderedJson messages = read_input(*fields.find("input"), fields);
  if (instructions) messages.insert(messages.begin(), OrderedJson{{"role", "system"}, {"content", *instructions}});
  conversation.messages = read_messages(messages, fields, "input");
  const OrderedJson* tools = fields.find("tools");
  if (tools != nullptr && !tools->empty()) conversation.tools = read_flat_tools(*tools, fields);
  const ToolChoice chosen = read_tool_choice(fields.find("tool_choice"), tool_names(conversation.tools));
  if (!chosen.told) conversation.tools = nullptr;
  ResponsePrompt prompt;
  if (const OrderedJson* reasoning = fields.find("reasoning")) {
    fields.ignore_others(*reasoning, "reasoning", {"effort"});
    if (const auto word = reasoning->find("effort"); word != reasoning->end() && word->is_string()) {
      prompt.effort = *word;
      set_effort(conversation, *prompt.effort, fields, "reasoning.effort", service);
    }
  }
  prompt.chat = chat_prompt(service, conversation, {}, "input");
  prompt.chat.force(forced_tools(chosen, conversation.tools));
  return prompt;
}

}  // namespace

const std::vector<Field>& response_tokens_fields() {
  static const std::vector<Field> table = [] {
    constexpr const char* none = "Adds no tokens.";
    return joined({input_fields(), {Field::ignored("text", none), Field::ignored("parallel_tool_calls", none)}});
  }();
  return table;
}

void count_response_tokens(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, response_tokens_fields(), service.options().strict_fields);
  service.model_named(fields.text("model"));
  const size_t tokens = read_prompt(fields, service).chat.ids.size();
  exchange->respond(json_response({{"object", "response.input_tokens"}, {"input_tokens", tokens}}, fields));
}

const std::vector<Field>& response_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    return joined(
        {input_fields(),
         {{"max_output_tokens", integer, "Maximum new tokens; absent: until the context is full.", Use::honored, 1, 1e9},
          {"stream", boolean, "The answer is sent as server-sent events. Default: false."},
          {"parallel_tool_calls", boolean, "false: only the first of several calls is used. Default: true."},
          {"text", object,
           "{\"format\": {\"type\": \"text\"}}, json_object, or json_schema with name and schema: the format of the answer."}},
         watch_fields(),
         sampling_fields(),
         foreign_fields(),
         {Field::refused("background", "answers are made while the client waits", "[false]"),
          Field::refused("prompt", "no prompts are stored here; send input"),
          Field::refused("top_logprobs", "use /v1/chat/completions with logprobs", "[0]"),
          Field::refused("max_tool_calls", "this server does not call tools itself"),
          Field::ignored("include", "There is nothing further to include."),
          Field::ignored("stream_options", "Events have no obfuscation; the usage is always included.")}});
  }();
  return table;
}

void responses(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, response_fields(), service.options().strict_fields);
  const std::string model = service.model_named(fields.text("model"));
  ResponsePrompt prompt = read_prompt(fields, service);
  const bool parallel = fields.boolean("parallel_tool_calls", true);
  const std::optional<int64_t> most = fields.integer("max_output_tokens");
  const bool streamed = fields.boolean("stream", false);
  Sampled sampled = read_sampling(fields, service, openai_sampling());
  const OrderedJson format = read_text_format(fields);
  sampled.options.constraint =
      only_one(read_format(format, "text.format", service, json_space(fields), prompt.chat.call_beside_format()),
               std::move(sampled.options.constraint), "text.format");
  sampled.options.max_tokens = most.value_or(INT32_MAX);
  sampled.options.alone = true;

  ResponseRequest request;
  request.one_call = !parallel;
  request.prompt = std::move(prompt.chat);
  check_room(service, request.prompt.ids.size(), "input");
  force_call(sampled, request.prompt.forced, request.prompt.reading.form, service, fields);
  if (sampled.options.constraint != nullptr) request.prompt.constrain();
  WatchedTexts watched{.prompts = {request.prompt.ids}, .max_tokens = sampled.options.max_tokens, .streamed = streamed};
  watched.max_tokens_field = "max_output_tokens";
  request.watch = std::make_shared<const Watch>(fields, service, exchange, watched);
  const std::optional<std::string> instructions = fields.text("instructions");
  const OrderedJson *tools = fields.find("tools"), *choice = fields.find("tool_choice");
  request.head = {
      {"id", random_id("resp_")},
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
      {"reasoning", {{"effort", prompt.effort ? OrderedJson(*prompt.effort) : OrderedJson(nullptr)}, {"summary", nullptr}}},
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
  work.listener = request.watch->listener(0);
  const auto answer = std::make_shared<ResponseAnswer>(service, exchange, streamed, std::move(request));
  answer->add(std::move(work), 0, sampled);
  answer->start();
}

}  // namespace vitrine::serve
