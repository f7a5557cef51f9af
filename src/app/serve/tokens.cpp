// POST /tokenize and /detokenize, GET /tokenizer_info: the tokenizer for clients that have none.
#include "base/memory.h"
#include "base/utf8.h"
#include "serve/chat_prompt.h"
#include "serve/endpoints.h"
#include "serve/openai_answer.h"
#include "serve/token_text.h"

namespace vitrine::serve {
namespace {

// A piece's text, or its bytes where they are no text by themselves.
OrderedJson piece_text_json(const Engine& engine, int32_t id) {
  const std::string bytes = token_bytes(engine, id);
  return is_valid_utf8(bytes) ? OrderedJson(bytes) : bytes_json(bytes);
}

/// The members of an answer as JSON text, none of which is longer than answers may be. As text a list takes a tenth of what it
/// takes as JSON values.
class LongAnswer {
 public:
  explicit LongAnswer(const Service& service) : most_(service.options().answer_bytes) {}

  void add(const std::string& name, const OrderedJson& value) {
    append((text_.empty() ? "{" : ",") + json_text(name) + ":" + json_text(value));
  }
  /// `element` gives the JSON text of each id.
  template <class Element>
  void add_list(const std::string& name, std::span<const int32_t> ids, Element element) {
    append((text_.empty() ? "{" : ",") + json_text(name) + ":[");
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i > 0) text_ += ',';
      append(element(ids[i]));
    }
    text_ += ']';
  }
  http::Response response(const Fields& fields) && {
    OrderedJson ignored = OrderedJson::object();
    fields.add_ignored(ignored);
    for (const auto& [name, value] : ignored.items()) add(name, value);
    http::Response response;
    response.body = std::move(text_) + "}";
    return response;
  }

 private:
  void append(const std::string& text) {
    if (text_.size() + text.size() > most_)
      throw ApiError(400, "answer_too_large",
                     "the answer would have more than " + bytes_text(static_cast<double>(most_)) +
                         " (--max-answer); send less text in one request, or ask for less of each token");
    text_ += text;
  }
  const size_t most_;
  std::string text_;
};

std::string id_text(int32_t id) { return std::to_string(id); }

}  // namespace

const std::vector<Field>& tokenize_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    const Field content{"content", text, "The text (llama.cpp's name)."};
    Field prompt{"prompt", text, "The text (vLLM's name)."};
    prompt.same_as = "content";
    std::vector<Field> own = {
        model_field(),
        content,
        prompt,
        {"messages", list, "A conversation instead of a text."},
        {"add_special", boolean, "Add BOS and EOS if the tokenizer does. Default: false with content, true with prompt."},
        {"add_special_tokens", boolean, "The same as `add_special`."},
        {"parse_special", boolean, "Control tokens spelled in the text become their ids. Default: true."},
        {"with_pieces", boolean, "tokens are objects with id and piece, a string or bytes. Default: false."},
        {"return_token_strs", boolean, "The pieces, as token_strs. Default: false."},
    };
    own[5].same_as = "add_special";
    std::vector<Field> conversation = conversation_fields();
    conversation.erase(conversation.begin());  // messages, which may be absent here
    return joined({own, conversation});
  }();
  return table;
}

void tokenize(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, tokenize_fields(), service.options().strict_fields);
  service.model_named(fields.text("model"));
  const Engine& engine = service.engine();
  const std::optional<std::string> content = fields.text("content");
  const bool chat = fields.has("messages");
  const bool vllm = chat || fields.has("prompt");
  const bool special = fields.boolean("add_special", vllm && !chat);
  const bool parse = fields.boolean("parse_special", true);
  const bool pieces = fields.boolean("with_pieces", false), strings = fields.boolean("return_token_strs", false);
  if (chat == content.has_value())
    throw invalid("content", "give either \"content\" (or \"prompt\") or \"messages\"", "missing_required_parameter");
  std::vector<int32_t> ids;
  if (chat) {
    ids = read_chat(fields, service).ids;
  } else {
    for (const Field& field : conversation_fields())
      if (field.name != "messages" && fields.has(field.name))
        throw invalid(field.name, "\"" + field.name + "\" belongs to \"messages\"");
    ids = engine.tokenizer().encode(*content, special, parse ? Special::parse : Special::text);
  }
  LongAnswer json(service);
  json.add_list("tokens", ids, [&](int32_t id) {
    return pieces ? json_text(OrderedJson{{"id", id}, {"piece", piece_text_json(engine, id)}}) : id_text(id);
  });
  json.add("count", ids.size());
  json.add("max_model_len", service.scheduler().positions());
  if (strings) json.add_list("token_strs", ids, [&](int32_t id) { return json_text(engine.tokenizer().piece(id)); });
  exchange->respond(std::move(json).response(fields));
}

const std::vector<Field>& detokenize_fields() {
  static const std::vector<Field> table = [] {
    Field tokens{"tokens", type::integers, "Ids."};
    tokens.required = true;
    return std::vector<Field>{model_field(), tokens};
  }();
  return table;
}

void detokenize(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, detokenize_fields(), service.options().strict_fields);
  service.model_named(fields.text("model"));
  const Tokenizer& tokenizer = service.engine().tokenizer();  // there must be one
  const std::vector<int32_t> ids = token_ids(service.engine(), fields.integers("tokens"), "tokens");
  size_t bytes = 0;
  for (const int32_t id : ids) bytes += id < tokenizer.vocab_size() ? tokenizer.piece(id).size() : 0;
  if (const size_t most = service.options().answer_bytes; 2 * bytes > most)
    throw ApiError(400, "answer_too_large",
                   "the text of \"tokens\" would have about " + bytes_text(static_cast<double>(bytes)) +
                       ", and stands in the answer twice, which has at most " + bytes_text(static_cast<double>(most)) +
                       " (--max-answer); send fewer ids in one request",
                   "tokens");
  const std::string text = prompt_text(service.engine(), ids);
  OrderedJson json = {{"content", text}, {"prompt", text}};
  exchange->respond(json_response(std::move(json), fields));
}

void tokenizer_info(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const Tokenizer& tokenizer = service.engine().tokenizer();
  const auto named = [&](std::optional<int32_t> id) { return id ? OrderedJson(tokenizer.piece(*id)) : OrderedJson(nullptr); };
  OrderedJson ends = OrderedJson::array();
  for (const int32_t id : service.end_tokens()) ends.push_back(id);
  const auto number = [](std::optional<int32_t> id) { return id ? OrderedJson(*id) : OrderedJson(nullptr); };
  exchange->respond(json_response(
      {{"tokenizer_class", "vitrine"},
       {"description", tokenizer.description()},
       {"vocab_size", tokenizer.vocab_size()},
       {"model_max_length", service.scheduler().positions()},
       {"bos_token", named(tokenizer.bos())},
       {"eos_token", named(tokenizer.eos())},
       {"unk_token", named(tokenizer.unknown())},
       {"pad_token", named(tokenizer.padding())},
       {"bos_token_id", number(tokenizer.bos())},
       {"eos_token_id", number(tokenizer.eos())},
       {"pad_token_id", number(tokenizer.padding())},
       {"end_token_ids", ends},
       {"add_bos_token", tokenizer.adds_bos()},
       {"add_eos_token", tokenizer.adds_eos()},
       {"chat_template", service.chat_template().empty() ? OrderedJson(nullptr) : OrderedJson(service.chat_template())}}));
}

const std::vector<Field>& template_fields() {
  static const std::vector<Field> table = joined({{model_field()}, conversation_fields()});
  return table;
}

void apply_template(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, template_fields(), service.options().strict_fields);
  service.model_named(fields.text("model"));
  const ChatPrompt prompt = read_chat(fields, service);
  LongAnswer json(service);
  json.add("prompt", prompt.text);
  json.add_list("tokens", prompt.ids, id_text);
  json.add_list("pieces", prompt.ids, [&](int32_t id) { return json_text(token_text(service.engine(), id)); });
  exchange->respond(std::move(json).response(fields));
}

void count_chat_tokens(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, template_fields(), service.options().strict_fields);
  service.model_named(fields.text("model"));
  OrderedJson json = {{"input_tokens", read_chat(fields, service).ids.size()}};
  exchange->respond(json_response(std::move(json), fields));
}

}  // namespace vitrine::serve
