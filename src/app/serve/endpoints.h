#pragma once
// The handlers of the endpoints and the tables of their fields; serve/routes.cpp lists them. A handler answers its exchange, now
// or later, or throws before it has: then the exception is the answer (serve/api_error.h).
#include <memory>
#include <string_view>
#include <vector>

#include "http/exchange.h"
#include "requests/fields.h"
#include "serve/service.h"

namespace vitrine::serve {

using Handle = void (*)(Service&, const std::shared_ptr<http::Exchange>&);

void page(Service&, const std::shared_ptr<http::Exchange>&);
void health(Service&, const std::shared_ptr<http::Exchange>&);
void ready(Service&, const std::shared_ptr<http::Exchange>&);
void models(Service&, const std::shared_ptr<http::Exchange>&);
void model(Service&, const std::shared_ptr<http::Exchange>&);
void completions(Service&, const std::shared_ptr<http::Exchange>&);
void chat_completions(Service&, const std::shared_ptr<http::Exchange>&);
void embeddings(Service&, const std::shared_ptr<http::Exchange>&);
void tokenize(Service&, const std::shared_ptr<http::Exchange>&);
void detokenize(Service&, const std::shared_ptr<http::Exchange>&);
void tokenizer_info(Service&, const std::shared_ptr<http::Exchange>&);
void apply_template(Service&, const std::shared_ptr<http::Exchange>&);
void count_chat_tokens(Service&, const std::shared_ptr<http::Exchange>&);
void props(Service&, const std::shared_ptr<http::Exchange>&);
void slots(Service&, const std::shared_ptr<http::Exchange>&);
void slot_action(Service&, const std::shared_ptr<http::Exchange>&);
void metrics(Service&, const std::shared_ptr<http::Exchange>&);
void completion(Service&, const std::shared_ptr<http::Exchange>&);
void messages(Service&, const std::shared_ptr<http::Exchange>&);
void count_tokens(Service&, const std::shared_ptr<http::Exchange>&);
void infill(Service&, const std::shared_ptr<http::Exchange>&);
/// Refuses, with what to do instead.
void rerank(Service&, const std::shared_ptr<http::Exchange>&);
void responses(Service&, const std::shared_ptr<http::Exchange>&);
void count_response_tokens(Service&, const std::shared_ptr<http::Exchange>&);
void ollama_version(Service&, const std::shared_ptr<http::Exchange>&);
void ollama_tags(Service&, const std::shared_ptr<http::Exchange>&);
void ollama_ps(Service&, const std::shared_ptr<http::Exchange>&);
void ollama_show(Service&, const std::shared_ptr<http::Exchange>&);
void ollama_chat(Service&, const std::shared_ptr<http::Exchange>&);
void ollama_generate(Service&, const std::shared_ptr<http::Exchange>&);
void ollama_embed(Service&, const std::shared_ptr<http::Exchange>&);
void ollama_embeddings(Service&, const std::shared_ptr<http::Exchange>&);
void ollama_pull(Service&, const std::shared_ptr<http::Exchange>&);
/// Of what would change the list of models.
void ollama_manage(Service&, const std::shared_ptr<http::Exchange>&);
void openapi(Service&, const std::shared_ptr<http::Exchange>&);
void score(Service&, const std::shared_ptr<http::Exchange>&);
void model_facts(Service&, const std::shared_ptr<http::Exchange>&);
void list_pictures(Service&, const std::shared_ptr<http::Exchange>&);
void picture(Service&, const std::shared_ptr<http::Exchange>&);
void walk_page(Service&, const std::shared_ptr<http::Exchange>&);
void live_model(Service&, const std::shared_ptr<http::Exchange>&);
void inside_request(Service&, const std::shared_ptr<http::Exchange>&);

void list_adapters(Service&, const std::shared_ptr<http::Exchange>&);
void set_adapter_scales(Service&, const std::shared_ptr<http::Exchange>&);
void load_adapter(Service&, const std::shared_ptr<http::Exchange>&);
void remove_adapter(Service&, const std::shared_ptr<http::Exchange>&);

/// The field model.
const Field& model_field();
const std::vector<Field>& completion_fields();
const std::vector<Field>& chat_completion_fields();
const std::vector<Field>& embedding_fields();
const std::vector<Field>& tokenize_fields();
const std::vector<Field>& detokenize_fields();
const std::vector<Field>& template_fields();
const std::vector<Field>& native_completion_fields();
const std::vector<Field>& message_fields();
const std::vector<Field>& count_tokens_fields();
const std::vector<Field>& response_fields();
const std::vector<Field>& response_tokens_fields();
const std::vector<Field>& infill_fields();
const std::vector<Field>& slot_fields();
const std::vector<Field>& ollama_show_fields();
const std::vector<Field>& ollama_pull_fields();
const std::vector<Field>& ollama_chat_fields();
const std::vector<Field>& ollama_generate_fields();
const std::vector<Field>& ollama_embed_fields();
const std::vector<Field>& ollama_embeddings_fields();
const std::vector<Field>& picture_fields();
const std::vector<Field>& adapter_scale_fields();
const std::vector<Field>& load_adapter_fields();
const std::vector<Field>& remove_adapter_fields();
/// Of POST /v1/live/{request}: each field once, with the requests that take it.
const std::vector<Field>& live_fields();
/// Of a request of requests/request.h as an endpoint of its own, which takes adapters, and all options of texts if it makes one.
const std::vector<Field>& endpoint_fields(std::string_view request);

}  // namespace vitrine::serve
