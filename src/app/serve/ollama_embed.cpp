// POST /api/embed and /api/embeddings: the vectors of /v1/embeddings in Ollama's format.
#include <chrono>

#include "serve/embeddings.h"
#include "serve/endpoints.h"
#include "serve/lora.h"
#include "serve/ollama.h"
#include "serve/openai_answer.h"

namespace vitrine::serve {
namespace {

// The adapters of a request without sampling: that of `model`, or those of options.lora.
ScaledAdapters embedding_adapters(const Fields& fields, const Service& service) {
  static const std::vector<Field> table = joined({{model_field()}, lora_fields()});
  const OrderedJson* options = fields.find("options");
  fields.has("keep_alive");  // acts where the model is chosen (serve/model_routes.cpp)
  OrderedJson json = {{"model", ollama_model(service, fields.text("model"))}};
  if (options != nullptr && options->contains("lora")) json["lora"] = (*options)["lora"];
  return read_adapters(Fields(json_text(json), table), service);
}

std::vector<Field> embedding_option_fields() {
  return {{"options", type::object, "`lora`, as for texts; the others have no effect."}, ollama_keep_alive_field()};
}

}  // namespace

const std::vector<Field>& ollama_embed_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    return joined({{model_field(),
                    {"input", text | texts, "A text or a list of texts, at most 2048: a vector for each."},
                    {"truncate", boolean, "true: a text that is longer than the context loses its end; otherwise it is refused."},
                    {"dimensions", integer, "The model's width; others are refused.", Use::honored, 1, 1e9}},
                   embedding_option_fields()});
  }();
  return table;
}

void ollama_embed(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, ollama_embed_fields(), service.options().strict_fields);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> texts = fields.texts("input");
  if (texts.size() == 1 && texts[0].empty()) texts.clear();
  check_embedded_texts(texts.size());
  check_width(fields, service.engine());
  const bool cut = fields.boolean("truncate", false);
  std::vector<std::vector<int32_t>> inputs;
  size_t tokens = 0;
  for (const std::string& text : texts) {
    std::vector<int32_t> ids = service.engine().prompt_ids(text);
    if (const int64_t room = service.scheduler().positions(); cut && room > 0 && std::ssize(ids) > room)
      ids.resize(static_cast<size_t>(room));
    check_room(service, ids.size(), "input");
    tokens += ids.size();
    inputs.push_back(std::move(ids));
  }
  ScaledAdapters adapters = embedding_adapters(fields, service);
  OrderedJson json = {{"model", fields.text("model").value_or(ollama_name(service.name()))},
                      {"embeddings", OrderedJson::array()},
                      {"total_duration", ollama_nanoseconds(0)}};
  json.update({{"load_duration", ollama_nanoseconds(0)}, {"prompt_eval_count", tokens}});
  fields.add_ignored(json);
  if (inputs.empty()) return exchange->respond(json_response(json));
  const auto add = [begin](OrderedJson& answer, const std::vector<float>& embedding) {
    answer["embeddings"].push_back(embedding);
    answer["total_duration"] = ollama_nanoseconds_since(begin);
  };
  answer_embeddings(service, exchange, std::move(inputs), std::move(adapters), std::move(json), add, ErrorForm::ollama);
}

const std::vector<Field>& ollama_embeddings_fields() {
  static const std::vector<Field> table =
      joined({{model_field(), {"prompt", type::text, "The text; absent or empty: no numbers."}}, embedding_option_fields()});
  return table;
}

void ollama_embeddings(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, ollama_embeddings_fields(), service.options().strict_fields);
  const std::string prompt = fields.text("prompt").value_or("");
  ScaledAdapters adapters = embedding_adapters(fields, service);
  OrderedJson json = {{"embedding", OrderedJson::array()}};
  fields.add_ignored(json);
  if (prompt.empty()) return exchange->respond(json_response(json));
  std::vector<int32_t> ids = service.engine().prompt_ids(prompt);
  check_room(service, ids.size(), "prompt");
  const auto add = [](OrderedJson& answer, const std::vector<float>& embedding) { answer["embedding"] = embedding; };
  answer_embeddings(service, exchange, {std::move(ids)}, std::move(adapters), std::move(json), add, ErrorForm::ollama);
}

}  // namespace vitrine::serve
