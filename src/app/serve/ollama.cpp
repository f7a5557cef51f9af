// POST /api/chat and /api/generate: Ollama's requests for texts. Each becomes the conversation or the prompt that the other
// endpoints run; `options` are their fields of sampling.
#include "serve/ollama.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/utc_time.h"
#include "serve/chat_prompt.h"
#include "serve/chat_text.h"
#include "serve/endpoints.h"
#include "serve/grammars.h"
#include "serve/native_sampling.h"
#include "serve/openai_answer.h"
#include "serve/sampling_fields.h"
#include "serve/token_text.h"

namespace vitrine::serve {
namespace {

struct OllamaRequest {
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  std::string model, named;  // as the server and as the client calls it
  bool chat = false, raw = false, logprobs = false;
  ChatPrompt prompt;
  std::vector<int32_t> ends;  // tokens that end a text
  OrderedJson ignored = nullptr;
};

OrderedJson ollama_head(const OllamaRequest& request) { return {{"model", request.named}, {"created_at", utc_time()}}; }

class OllamaAnswer final : public Answer {
 public:
  OllamaAnswer(Service& service, std::shared_ptr<http::Exchange> exchange, bool streamed, OllamaRequest request)
      : Answer(service, std::move(exchange), streamed, ErrorForm::ollama),
        request_(std::move(request)),
        text_(request_.prompt, false) {}

 private:
  const char* stream_type() const override { return "application/x-ndjson"; }
  std::string ping() const override { return ""; }  // clients parse every line

  OrderedJson whole() override {
    const Choice& choice = choices().front();
    return last_json(choice, text_.said(choice), 0);
  }

  void on_token(Choice& choice) override {
    const std::optional<Said> more = read(choice);
    const size_t begin = choice.tokens.size() - 1;
    if (!more && !request_.logprobs) return;
    OrderedJson json = part_json(more.value_or(Said()));
    json["done"] = false;
    if (request_.logprobs) json["logprobs"] = ollama_logprobs(choice, begin);
    send_line(json);
  }

  void on_end(Choice& choice) override {
    if (const std::optional<Said> more = read(choice)) {
      OrderedJson json = part_json(*more);
      json["done"] = false;
      send_line(json);
    }
    send_line(last_json(choice, {}, choice.tokens.size()));
  }

  void on_error(const ApiError& error) override { send_line(error_json(error, ErrorForm::ollama)); }

  // What came since the last line; calls when they are whole.
  std::optional<Said> read(const Choice& choice) {
    Said more;
    for (const SaidPart& part : text_.read(choice)) {
      if (part.kind == SaidPart::Kind::content) more.content += part.text;
      if (part.kind == SaidPart::Kind::reasoning) more.reasoning += part.text;
      if (part.kind == SaidPart::Kind::call) call_ = {part.text, "", false};
      if (part.kind == SaidPart::Kind::arguments) call_.arguments += part.text;
      if (part.kind == SaidPart::Kind::call_end) more.calls.push_back(call_);
    }
    if (more.content.empty() && more.reasoning.empty() && more.calls.empty()) return {};
    return more;
  }

  void send_line(const OrderedJson& json) { send_text(json_text(json) + "\n"); }

  OrderedJson part_json(const Said& said) {
    OrderedJson json = ollama_head(request_);
    if (!request_.chat) {
      json["response"] = said.content;
      if (!said.reasoning.empty()) json["thinking"] = said.reasoning;
      return json;
    }
    OrderedJson message = {{"role", "assistant"}, {"content", said.content}};
    if (!said.reasoning.empty()) message["thinking"] = said.reasoning;
    for (const ToolCall& call : said.calls)
      message["tool_calls"].push_back(
          {{"id", text_.call_id()},
           {"function", {{"index", calls_++}, {"name", call.name}, {"arguments", arguments_object(call)}}}});
    json["message"] = std::move(message);
    return json;
  }

  // The last object, with log-probabilities of the tokens from `begin`.
  OrderedJson last_json(const Choice& choice, const Said& said, size_t begin) {
    OrderedJson json = part_json(said);
    json["done"] = true;
    json["done_reason"] = choice.finish_reason();
    if (!request_.chat && !request_.raw) {
      json["context"] = request_.prompt.ids;
      for (const Token& token : choice.tokens)
        if (!is_end(token.id)) json["context"].push_back(token.id);
    }
    if (request_.logprobs && begin < choice.tokens.size()) json["logprobs"] = ollama_logprobs(choice, begin);
    json.update({{"total_duration", ollama_nanoseconds_since(request_.begin)},
                 {"load_duration", ollama_nanoseconds(0)},
                 {"prompt_eval_count", choice.prompt_ids.size()},
                 {"prompt_eval_duration", ollama_nanoseconds(choice.end.timings.prompt_ms)},
                 {"eval_count", choice.tokens.size()},
                 {"eval_duration", ollama_nanoseconds(choice.end.timings.decode_ms)}});
    if (!request_.ignored.is_null()) json["ignored_fields"] = request_.ignored;
    return json;
  }

  bool is_end(int32_t token) const { return std::ranges::find(request_.ends, token) != request_.ends.end(); }

  OrderedJson ollama_logprobs(const Choice& choice, size_t begin) {
    const Engine& engine = service().engine();
    OrderedJson list = OrderedJson::array();
    for (size_t i = begin; i < choice.tokens.size(); ++i) {
      const Token& token = choice.tokens[i];
      if (is_end(token.id)) continue;
      OrderedJson entry = token_json(engine, token.id, token.logprob);
      for (const TokenLogprob& t : token.top) entry["top_logprobs"].push_back(token_json(engine, t.token, t.logprob));
      list.push_back(std::move(entry));
    }
    return list;
  }

  const OllamaRequest request_;
  ChatText text_;
  ToolCall call_;     // that is being read
  size_t calls_ = 0;  // that were sent
};

OllamaRequest ollama_request(const Fields& fields, const Service& service, bool chat) {
  OllamaRequest request;
  request.chat = chat;
  const std::optional<std::string> wanted = fields.text("model");
  request.model = ollama_model(service, wanted);
  fields.has("keep_alive");  // acts where the model is chosen (serve/model_routes.cpp)
  request.named = wanted && !wanted->empty() ? *wanted : ollama_name(request.model);
  return request;
}

// Ollama answers so where there is nothing to continue: it has loaded the model.
void answer_loaded(const std::shared_ptr<http::Exchange>& exchange, const OllamaRequest& request) {
  OrderedJson json = ollama_head(request);
  if (request.chat)
    json["message"] = {{"role", "assistant"}, {"content", ""}};
  else
    json["response"] = "";
  json.update({{"done", true}, {"done_reason", "load"}});
  exchange->respond(json_response(json));
}

// true, false, or an effort.
void read_think(Fields& fields, const OllamaRequest& request, Conversation& conversation, const Service& service) {
  const OrderedJson* think = fields.find("think");
  if (think == nullptr) return;
  if (*think != false && !ollama_thinks(service))
    throw invalid("think",
                  "\"" + request.named + "\" does not support thinking: its chat template shows none. Give \"think\": false",
                  "unsupported_parameter");
  if (think->is_string())
    set_effort(conversation, *think, fields, "think", service);
  else
    set_thinking(conversation, think->get<bool>(), service);
}

// As /v1/chat/completions takes them.
OrderedJson openai_messages(OrderedJson messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    OrderedJson& message = messages[i];
    if (!message.is_object()) continue;
    if (const auto images = message.find("images"); images != message.end()) {
      const std::string at = "messages[" + std::to_string(i) + "].images";
      if (!images->is_null() && !(images->is_array() && images->empty()))
        throw invalid(at, "\"" + at + "\" is not supported: this model reads only text", "unsupported_content");
      message.erase(images);
    }
    if (const auto name = message.find("tool_name"); name != message.end()) {
      const OrderedJson value = *name;
      message.erase("tool_name");
      message["name"] = value;
    }
  }
  return messages;
}

// What `options` say of sampling, with Ollama's defaults. Errors: RequestError naming the option.
Sampled ollama_sampling(Fields& fields, const Service& service, const OllamaRequest& request) {
  const OrderedJson* given = fields.find("options");
  OrderedJson options = given == nullptr ? OrderedJson::object() : *given;
  options["model"] = request.model;  // which may be an adapter
  static const std::vector<Field> table = joined({{model_field()}, ollama_option_fields()});
  SamplingOptions defaults = native_sampling();
  defaults.top_p = 0.9;
  defaults.min_p.reset();
  try {
    const Fields read(json_text(options), table, service.options().strict_fields);
    Sampled sampled = read_sampling(read, service, defaults);
    const int64_t most = read.integer("num_predict").value_or(-1);
    sampled.options.max_tokens = most <= 0 ? INT32_MAX : most;
    for (const std::string& name : read.ignored()) fields.ignore("options." + name);
    return sampled;
  } catch (const RequestError& e) {
    throw RequestError(std::string("in \"options\": ") + e.what(), e.code, "options." + e.field);
  }
}

std::shared_ptr<const Constraint> ollama_format(const Fields& fields, const Service& service) {
  const OrderedJson* format = fields.find("format");
  if (format == nullptr || *format == "") return nullptr;
  if (format->is_object()) return read_format({{"type", "json_schema"}, {"schema", *format}}, "format", service);
  if (*format != "json")
    throw invalid("format", "\"format\" is " + json_text(*format) + "; expected \"json\" or a JSON schema as an object");
  return read_format({{"type", "json_object"}}, "format", service);
}

void run_text(Service& service, const std::shared_ptr<http::Exchange>& exchange, Fields& fields, OllamaRequest request,
              bool alone) {
  check_room(service, request.prompt.ids.size(), request.chat ? "messages" : "prompt");
  Sampled sampled = ollama_sampling(fields, service, request);
  sampled.options.constraint = only_one(ollama_format(fields, service), std::move(sampled.options.constraint), "format");
  if (sampled.options.constraint != nullptr) request.prompt.constrain();
  sampled.options.alone = alone;
  const bool streamed = fields.boolean("stream", true);
  request.logprobs = fields.boolean("logprobs", false);
  const int64_t top = fields.integer("top_logprobs").value_or(0);
  if (top > 0 && !request.logprobs)
    throw invalid("top_logprobs", "\"top_logprobs\" is " + std::to_string(top) + " without \"logprobs\": true");
  request.ends = sampled.options.eos;
  if (!fields.ignored().empty()) request.ignored = fields.ignored();
  Work work;
  work.prompt = request.prompt.ids;
  work.options = std::move(sampled.options);
  work.top = top;
  const auto answer = std::make_shared<OllamaAnswer>(service, exchange, streamed, std::move(request));
  answer->add(std::move(work), 0, sampled);
  answer->start();
}

std::vector<Field> text_fields() {
  using namespace type;
  return {
      {"stream", boolean, "The answer is sent as lines of JSON. Default: true."},
      {"format", text | object, "\"json\", or a JSON schema that the text follows."},
      {"options", object, "Sampling and length: the table above."},
      {"think", boolean | text,
       "true or false: enable_thinking of the chat template; low, medium or high: its reasoning_effort. Refused where the "
       "template shows no thinking, but for false."},
      {"logprobs", boolean, "Log-probabilities of the text's tokens, as log-softmax of the unmodified logits. Default: false."},
      {"top_logprobs", integer, "Number of most likely tokens for each token; needs logprobs. Default: 0.", Use::honored, 0, 20},
      ollama_keep_alive_field(),
      Field::ignored("truncate", "Prompts are never truncated."),
      Field::ignored("shift", "A full context ends the text.")};
}

}  // namespace

const std::vector<Field>& ollama_option_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    std::vector<Field> own = {
        {"num_predict", integer, "Maximum new tokens; 0 and below (-1 is the default): until the context is full.", Use::honored,
         -2, 1e9},
        Field::ignored("num_ctx", "The context is that of the server's `--context`, and nothing is cut."),
        Field::ignored("num_keep", "A full context ends the text; there is no context shift."),
        Field::ignored("repeat_last_n", "The repetition penalty covers the whole prompt and text."),
        Field::ignored("draft_num_predict", "Use `speculative.n_max`."),
        Field::ignored("penalize_newline", "Line ends are penalized as other tokens are."),
        Field::refused("tfs_z", "tail-free sampling is not supported; use top_p or min_p", "[0, 1]")};
    for (const char* name : {"num_batch", "num_gpu", "main_gpu", "num_thread", "numa", "low_vram", "f16_kv", "logits_all",
                             "vocab_only", "use_mmap", "use_mlock", "embedding_only"})
      own.push_back(Field::ignored(name, "How the model runs is said when the server starts."));
    return joined({own, sampling_fields()});
  }();
  return table;
}

const std::vector<Field>& ollama_chat_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    return joined({{model_field(),
                    {"messages", list,
                     "The conversation: role system, user, assistant or tool, content, tool_calls, tool_name. If the last one is "
                     "the assistant's, the answer continues it. Absent or empty: the answer says that the model is loaded."},
                    {"tools", list,
                     "Functions that the model may call: {\"type\": \"function\", \"function\": {name, description, "
                     "parameters}}. The chat template must support tools."}},
                   text_fields()});
  }();
  return table;
}

void ollama_chat(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, ollama_chat_fields(), service.options().strict_fields);
  OllamaRequest request = ollama_request(fields, service, true);
  const OrderedJson* messages = fields.find("messages");
  if (messages == nullptr || messages->empty()) return answer_loaded(exchange, request);
  Conversation conversation;
  conversation.messages = read_messages(openai_messages(*messages), fields);
  if (const OrderedJson* tools = fields.find("tools"); tools != nullptr && !tools->empty()) conversation.tools = *tools;
  read_think(fields, request, conversation, service);
  const OrderedJson last = conversation.messages.back();
  const bool goes_on = conversation.messages.size() > 1 && last["role"] == "assistant" && !last.contains("tool_calls");
  if (goes_on) {
    conversation.begun = last["content"].get<std::string>();
    conversation.messages.erase(conversation.messages.size() - 1);
  }
  request.prompt = chat_prompt(service, conversation);
  run_text(service, exchange, fields, std::move(request), !goes_on);
}

const std::vector<Field>& ollama_generate_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    return joined(
        {{model_field(),
          {"prompt", text, "The message that is answered. Absent or empty: the answer says that the model is loaded."},
          {"system", text, "A system message before it."},
          {"raw", boolean, "The prompt is continued as it is, without the chat template. Default: false."},
          {"context", integers,
           "The context of an answer before: its tokens stand in front of the prompt. Deprecated by Ollama."}},
         text_fields(),
         {Field::refused("template", "start the server with --template FILE, or use \"raw\" with a prompt that is rendered",
                         "[\"\"]"),
          Field::refused("suffix", "text can be continued only at its end", "[\"\"]"),
          Field::refused("images", "this model reads only text", "[[]]")}});
  }();
  return table;
}

void ollama_generate(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, ollama_generate_fields(), service.options().strict_fields);
  OllamaRequest request = ollama_request(fields, service, false);
  const std::string prompt = fields.text("prompt").value_or(""), system = fields.text("system").value_or("");
  request.raw = fields.boolean("raw", false);
  const std::vector<int64_t> context = fields.integers("context");
  if (prompt.empty()) return answer_loaded(exchange, request);
  Conversation conversation;
  read_think(fields, request, conversation, service);
  if (request.raw) {
    if (!system.empty() || !context.empty())
      throw invalid("raw", "raw mode does not support \"system\" or \"context\"; put them into the prompt");
    request.prompt.ids = service.engine().prompt_ids(prompt, true, Special::parse);
    return run_text(service, exchange, fields, std::move(request), false);
  }
  if (!system.empty()) conversation.messages.push_back({{"role", "system"}, {"content", system}});
  conversation.messages.push_back({{"role", "user"}, {"content", prompt}});
  const bool plain = service.chat_is_plain();  // then a prompt is the beginning of the text, as in Ollama
  conversation.answer = !plain;
  request.prompt = chat_prompt(service, conversation, {}, "prompt");
  if (!context.empty()) {
    std::vector<int32_t>& ids = request.prompt.ids;
    if (service.engine().tokenizer().bos() == ids.front()) ids.erase(ids.begin());
    const std::vector<int32_t> before = token_ids(service.engine(), context, "context");
    ids.insert(ids.begin(), before.begin(), before.end());
  }
  run_text(service, exchange, fields, std::move(request), !plain);
}

}  // namespace vitrine::serve
