// POST /v1/chat/completions: a conversation is answered.
#include <algorithm>
#include <map>
#include <set>

#include "serve/chat_prompt.h"
#include "serve/chat_text.h"
#include "serve/endpoints.h"
#include "serve/grammars.h"
#include "serve/openai_answer.h"
#include "serve/sampling_fields.h"
#include "serve/token_text.h"
#include "serve/watch.h"

namespace vitrine::serve {
namespace {

struct ChatCompletionRequest {
  AnswerHead head;
  ChatPrompt prompt;
  bool logprobs = false, usage = false, token_ids = false, one_call = false, progress = false;
  std::vector<int32_t> ends;  // tokens that end a text
  std::shared_ptr<const Watch> watch;
};

class ChatCompletionAnswer final : public Answer {
 public:
  ChatCompletionAnswer(Service& service, std::shared_ptr<http::Exchange> exchange, bool streamed, ChatCompletionRequest request)
      : Answer(service, std::move(exchange), streamed), request_(std::move(request)), said_(request_.prompt, request_.one_call) {}

 private:
  OrderedJson whole() override {
    OrderedJson json = head_json(request_.head, "chat.completion", true);
    OrderedJson list = OrderedJson::array();
    for (Choice& choice : choices()) {
      const Said said = said_.said(choice);
      OrderedJson message = {{"role", "assistant"}, {"content", content_json(said)}, {"refusal", nullptr}};
      if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
      if (!said.calls.empty()) {
        message["tool_calls"] = OrderedJson::array();
        for (const ToolCall& call : said.calls) message["tool_calls"].push_back(call_json(call.name, call.arguments));
      }
      OrderedJson entry = {{"index", choice.index}, {"message", message}, {"logprobs", nullptr}};
      if (request_.logprobs) entry["logprobs"] = logprobs_json(choice, 0);
      if (request_.token_ids) entry["token_ids"] = ids_json(choice, 0);
      entry["finish_reason"] = ChatText::finish_reason(choice, said);
      list.push_back(std::move(entry));
    }
    json["choices"] = std::move(list);
    json["usage"] = usage_json(whole_usage());
    if (request_.token_ids) json["prompt_token_ids"] = request_.prompt.ids;
    json["timings"] = timings_json(choices().front().end, choices().front().tokens.size());
    return json;
  }

  void on_prompt(Choice& choice, const PromptEvent& event) override {
    if (!request_.progress) return;
    send_role(choice);
    send_chunk(chunk_entry(choice, OrderedJson::object()),
               {{"prompt_progress", {{"total", event.total}, {"cache", event.cached}, {"processed", event.done}}}});
  }

  std::string whole_text() override { return request_.watch->text_with_values(whole(), choices().front()); }

  void on_token(Choice& choice) override {
    std::vector<SaidPart> parts = said_.read(choice);
    // An end token has neither text nor log-probabilities of its own here; but its id is told, and with it the role.
    const bool detailed = request_.logprobs || request_.token_ids;
    if (parts.empty() && detailed) parts.push_back({SaidPart::Kind::content, ""});
    for (size_t i = 0; i < parts.size(); ++i) {
      OrderedJson entry = part_entry(choice, parts[i]);
      if (entry.is_null()) continue;
      const size_t begin = choice.tokens.size() - 1;
      if (request_.logprobs && i == 0) entry["logprobs"] = logprobs_json(choice, begin);
      if (request_.token_ids && i == 0) entry["token_ids"] = ids_json(choice, begin);
      send_role(choice);
      send_chunk(std::move(entry));
    }
  }

  void on_end(Choice& choice) override {
    send_role(choice);
    for (const SaidPart& part : said_.read(choice))
      if (OrderedJson entry = part_entry(choice, part); !entry.is_null()) send_chunk(std::move(entry));
    OrderedJson entry = chunk_entry(choice, OrderedJson::object());
    entry["finish_reason"] = ChatText::finish_reason(choice, said_.said(choice));
    send_chunk(std::move(entry));
  }

  void on_done() override {
    if (request_.usage || request_.watch->inspects()) {
      OrderedJson json = head_json(request_.head, "chat.completion.chunk", false);
      json["choices"] = OrderedJson::array();
      if (request_.usage) {
        json["usage"] = usage_json(whole_usage());
        json["timings"] = timings_json(choices().front().end, choices().front().tokens.size());
      }
      send_text("data: " + request_.watch->text_with_values(json, choices().front()) + "\n\n");
    }
    send_text("data: [DONE]\n\n");
  }

  static OrderedJson content_json(const Said& said) {
    return said.content.empty() && !said.calls.empty() ? OrderedJson(nullptr) : OrderedJson(said.content);
  }

  OrderedJson call_json(const std::string& name, const std::string& arguments) const {
    return {{"id", said_.call_id()}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
  }

  // A chunk's choice with a part of the message; null: the part has none.
  OrderedJson part_entry(const Choice& choice, const SaidPart& part) {
    size_t& calls = calls_[choice.index];
    OrderedJson call;
    switch (part.kind) {
      case SaidPart::Kind::content: return chunk_entry(choice, {{"content", part.text}});
      case SaidPart::Kind::reasoning: return chunk_entry(choice, {{"reasoning_content", part.text}});
      case SaidPart::Kind::call:
        call = {{"index", calls++}};
        call.update(call_json(part.text, ""));
        break;
      case SaidPart::Kind::arguments: call = {{"index", calls - 1}, {"function", {{"arguments", part.text}}}}; break;
      case SaidPart::Kind::call_end: return nullptr;
    }
    return chunk_entry(choice, {{"tool_calls", OrderedJson::array({std::move(call)})}});
  }

  Usage whole_usage() const {
    Usage whole = usage();
    whole.reasoning_tokens = said_.reasoning_tokens();
    return whole;
  }

  void send_role(Choice& choice) {
    if (!begun_.insert(choice.index).second) return;
    send_chunk(chunk_entry(choice, {{"role", "assistant"}, {"content", ""}}));
  }

  static OrderedJson chunk_entry(const Choice& choice, OrderedJson delta) {
    return {{"index", choice.index}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  }

  void send_chunk(OrderedJson entry, const OrderedJson& more = OrderedJson::object()) {
    OrderedJson json = head_json(request_.head, "chat.completion.chunk", !told_);
    if (request_.token_ids && !told_) json["prompt_token_ids"] = request_.prompt.ids;
    told_ = true;
    json["choices"] = OrderedJson::array({std::move(entry)});
    if (request_.usage) json["usage"] = nullptr;
    json.update(more);
    send(json);
  }

  static OrderedJson ids_json(const Choice& choice, size_t begin) {
    OrderedJson ids = OrderedJson::array();
    for (size_t i = begin; i < choice.tokens.size(); ++i) ids.push_back(choice.tokens[i].id);
    return ids;
  }

  // Of the tokens behind `begin`; an end token is none of the content's.
  OrderedJson logprobs_json(const Choice& choice, size_t begin) {
    OrderedJson content = OrderedJson::array();
    const std::vector<int32_t>& ends = request_.ends;
    for (size_t i = begin; i < choice.tokens.size(); ++i) {
      const Token& token = choice.tokens[i];
      if (i + 1 == choice.tokens.size() && std::find(ends.begin(), ends.end(), token.id) != ends.end()) continue;
      OrderedJson entry = token_json(service().engine(), token.id, token.logprob);
      entry["top_logprobs"] = OrderedJson::array();
      for (const TokenLogprob& t : token.top) entry["top_logprobs"].push_back(token_json(service().engine(), t.token, t.logprob));
      content.push_back(std::move(entry));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }

  const ChatCompletionRequest request_;
  ChatText said_;
  std::map<size_t, size_t> calls_;  // that have begun in each choice
  std::set<size_t> begun_;          // choices whose role was told
  bool told_ = false;               // the ignored fields
};

}  // namespace

const std::vector<Field>& chat_completion_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    const Field most{
        "max_completion_tokens", integer, "Maximum new tokens; -1 or absent: until the context is full.", Use::honored, -1, 1e9};
    Field old = most, native = most;
    old.name = "max_tokens", native.name = "n_predict";
    old.same_as = native.same_as = most.name;
    old.about = native.about = "The same as `max_completion_tokens`.";
    return joined(
        {{model_field()},
         conversation_fields(),
         {most,
          old,
          native,
          {"n", integer, "Answers; default 1.", Use::honored, 1, 128},
          {"logprobs", boolean,
           "Log-probabilities of the answer's tokens, as log-softmax of the unmodified logits. Default: false."},
          {"top_logprobs", integer, "Number of most likely tokens for each token; needs logprobs. Default: 0.", Use::honored, 0,
           100},
          {"stream", boolean, "The answer is sent as server-sent events. Default: false."},
          {"stream_options", object, "{\"include_usage\": true}: a last chunk contains the usage."},
          format_field(),
          {"parallel_tool_calls", boolean, "false: only the first of several calls is used. Default: true."},
          {"return_token_ids", boolean, "Ids of prompt and text. Default: false."},
          {"return_progress", boolean,
           "The HTTP stream reports the progress of the prefill, as prompt_progress. Default: false."}},
         watch_fields(),
         sampling_fields(),
         foreign_fields(),
         {Field::ignored("verbosity", "Has no effect."), Field::refused("echo", "use /v1/completions with echo", "[false]"),
          Field::refused("audio", "this model generates only text"),
          Field::refused("modalities", "this model generates only text", "[[\"text\"]]"),
          Field::refused("web_search_options", "this server does not search the web"),
          Field::refused("prediction", "predicted text is not used"), Field::refused("functions", "use tools", "[[]]"),
          Field::refused("function_call", "use tool_choice", "[\"none\",\"auto\"]")}});
  }();
  return table;
}

void chat_completions(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, chat_completion_fields(), service.options().strict_fields);
  ChatCompletionRequest request;
  const std::string model = service.model_named(fields.text("model"));
  request.prompt = read_chat(fields, service);
  check_room(service, request.prompt.ids.size(), "messages");
  request.logprobs = fields.boolean("logprobs", false);
  request.token_ids = fields.boolean("return_token_ids", false);
  request.progress = fields.boolean("return_progress", false);
  request.one_call = !fields.boolean("parallel_tool_calls", true);
  const int64_t top = fields.integer("top_logprobs").value_or(0);
  if (top > 0 && !request.logprobs)
    throw invalid("top_logprobs", "\"top_logprobs\" is " + std::to_string(top) + " without \"logprobs\": true");
  const bool streamed = fields.boolean("stream", false);
  request.usage = wants_stream_usage(fields, streamed);
  const auto n = static_cast<size_t>(fields.integer("n").value_or(1));
  check_streams(service, n, "n");
  const int64_t most = fields.integer("max_completion_tokens").value_or(-1);

  Sampled sampled = read_sampling(fields, service, openai_sampling());
  sampled.options.constraint =
      format_or(std::move(sampled.options.constraint), fields, service, request.prompt.call_beside_format());
  force_call(sampled, request.prompt.forced, request.prompt.reading.form, service, fields);
  if (sampled.options.constraint != nullptr) request.prompt.constrain();
  sampled.options.max_tokens = most < 0 ? INT32_MAX : most;
  request.watch = std::make_shared<const Watch>(
      fields, service, exchange, WatchedTexts{{request.prompt.ids}, n, "n", sampled.options.max_tokens, streamed, false});
  sampled.options.alone = !fields.boolean("continue_final_message", false);
  request.ends = sampled.options.eos;
  request.head = answer_head(service, fields, model, "chatcmpl-");
  const std::vector<int32_t> prompt = request.prompt.ids;
  const std::shared_ptr<const Watch> watch = request.watch;
  const auto answer = std::make_shared<ChatCompletionAnswer>(service, exchange, streamed, std::move(request));
  for (size_t i = 0; i < n; ++i) {
    Work work;
    work.prompt = prompt;
    work.options = sampled.options;
    work.stream = i;
    work.top = top;
    work.listener = watch->listener(0);
    answer->add(std::move(work), 0, sampled);
  }
  answer->start();
}

}  // namespace vitrine::serve
