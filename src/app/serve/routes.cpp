#include "serve/routes.h"

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

#include "base/memory.h"
#include "requests/request.h"

namespace vitrine::serve {
namespace {

bool matches(const std::string& pattern, const std::string& path) {
  const size_t brace = pattern.find('{');
  if (brace == std::string::npos) return pattern == path;
  return path.size() > brace && path.compare(0, brace, pattern, 0, brace) == 0;
}

struct GiveBackMemory {
  bool much;
  ~GiveBackMemory() {
    if (much) give_back_freed_memory();
  }
};

// "application/json", "application/json; charset=utf-8", none at all, or what curl -d says where nobody told it otherwise: pages
// of other origins, which could send that too, are refused by theirs (http/admission.h).
void check_type(const http::Request& request) {
  const std::string* type = request.header("Content-Type");
  if (type == nullptr) return;
  std::string media = type->substr(0, type->find(';'));
  while (!media.empty() && media.back() == ' ') media.pop_back();
  std::transform(media.begin(), media.end(), media.begin(), [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  if (media.empty() || media == "application/json" || media.ends_with("+json") || media == "application/x-www-form-urlencoded")
    return;
  throw ApiError(415, "unsupported_media_type", "the request's Content-Type is \"" + media + "\"; expected application/json");
}

// The body as JSON, as text and as tokens takes up to so many bytes for each of its own while the handler runs.
constexpr size_t kWorkOfAByte = 64;
constexpr size_t kMuchWork = size_t{32} << 20;

void handle_body(const Route& route, Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  service.quotas().begin(exchange->request().owner);
  const size_t work = kWorkOfAByte * exchange->request().body.size();
  const GiveBackMemory give_back{work >= kMuchWork};
  const http::WorkCharge charge = exchange->charge(work);
  route.handle(service, exchange);
}

// A request of requests/request.h as an endpoint of its own.
Route of_request(const char* path, Handle handle = inside_request) {
  const Request& request = find_request(std::string_view(path).substr(4));
  return {"POST", path, handle, request.summary,
          [&request]() -> const std::vector<Field>& { return endpoint_fields(request.name); }};
}

}  // namespace

const std::vector<Route>& routes() {
  using enum ErrorForm;
  static const std::string live_summary =
      "The requests of that page, the same as a live page sends to its own engine: " + request_names() + ".";
  static constexpr const char* managed = "Not supported; the error says what to do instead.";
  static const std::vector<Route> table = {
      {"GET", "/", page, "A web page: chat, and a look inside the model.", nullptr, openai, true},
      {"GET", "/explain", walk_page, "A web page: the walk-through of vitrine explain, which recomputes what you change.",
       nullptr, openai, true},
      {"GET", "/health", health, "Whether the server should go on: 503 while it drains, or if the model is stuck.", nullptr,
       openai, true, true},
      {"GET", "/ready", ready, "Whether the server takes new work now: 503 while it drains, or if the queue is full.", nullptr,
       openai, true, true},
      {"GET", "/v1/health", health, "The same as /health.", nullptr, openai, true, true},
      {"GET", "/v1/models", models, "The served model."},
      {"GET", "/models", models, "The same."},
      {"GET", "/v1/models/{id}", model, "One model by its name."},
      {"POST", "/v1/completions", completions, "Continues text or ids.", completion_fields},
      {"POST", "/v1/chat/completions", chat_completions, "Answers a conversation.", chat_completion_fields},
      {"POST", "/chat/completions", chat_completions, "The same.", chat_completion_fields},
      {"POST", "/v1/chat/completions/input_tokens", count_chat_tokens, "Counts the tokens of such a conversation.",
       template_fields},
      {"POST", "/chat/completions/input_tokens", count_chat_tokens, "The same.", template_fields},
      {"POST", "/v1/embeddings", embeddings, "A vector for each text.", embedding_fields},
      {"POST", "/embeddings", embeddings, "The same.", embedding_fields},
      {"POST", "/v1/messages", messages, "Answers a conversation in Anthropic's format.", message_fields, anthropic},
      {"POST", "/v1/messages/count_tokens", count_tokens, "Counts the tokens of such a conversation.", count_tokens_fields,
       anthropic},
      {"POST", "/v1/responses", responses, "Answers input in the format of OpenAI's Responses; nothing is stored.",
       response_fields},
      {"POST", "/responses", responses, "The same.", response_fields},
      {"POST", "/v1/responses/input_tokens", count_response_tokens, "Counts the tokens of such input.", response_tokens_fields},
      {"POST", "/responses/input_tokens", count_response_tokens, "The same.", response_tokens_fields},
      {"GET", "/api/version", ollama_version, "The version of Ollama whose API this is.", nullptr, ollama},
      {"GET", "/api/tags", ollama_tags, "The served model in Ollama's format.", nullptr, ollama},
      {"GET", "/api/ps", ollama_ps, "The same, as a running model.", nullptr, ollama},
      {"POST", "/api/show", ollama_show, "Facts about the model in Ollama's format.", ollama_show_fields, ollama},
      {"POST", "/api/chat", ollama_chat, "Answers a conversation in Ollama's format.", ollama_chat_fields, ollama},
      {"POST", "/api/generate", ollama_generate, "Answers or continues a text in Ollama's format.", ollama_generate_fields,
       ollama},
      {"POST", "/api/embed", ollama_embed, "A vector for each text in Ollama's format.", ollama_embed_fields, ollama},
      {"POST", "/api/embeddings", ollama_embeddings, "A vector for one text in Ollama's former format.", ollama_embeddings_fields,
       ollama},
      {"POST", "/api/pull", ollama_pull, "Downloads a model from the Hugging Face hub into this machine's cache.",
       ollama_pull_fields, ollama, false, false, false, true},
      {"POST", "/api/push", ollama_manage, managed, nullptr, ollama},
      {"POST", "/api/create", ollama_manage, managed, nullptr, ollama},
      {"POST", "/api/copy", ollama_manage, managed, nullptr, ollama},
      {"DELETE", "/api/delete", ollama_manage, managed, nullptr, ollama},
      {"POST", "/completion", completion, "Continues text in llama.cpp's format.", native_completion_fields},
      {"POST", "/completions", completion, "The same.", native_completion_fields},
      {"POST", "/infill", infill, "Fills the gap between two texts, in llama.cpp's format.", infill_fields},
      {"POST", "/v1/rerank", rerank, managed},
      {"POST", "/rerank", rerank, managed},
      {"POST", "/tokenize", tokenize, "Ids of a text or a conversation.", tokenize_fields},
      {"POST", "/detokenize", detokenize, "The text of ids.", detokenize_fields},
      {"GET", "/tokenizer_info", tokenizer_info, "The tokenizer: special tokens, vocabulary size, chat template."},
      {"POST", "/apply-template", apply_template, "The prompt that the chat template renders from a conversation.",
       template_fields},
      {"GET", "/props", props, "Model, sampling defaults, chat template."},
      {"GET", "/slots", slots, "The running sequences."},
      {"POST", "/slots/{id}", slot_action,
       "Saves, restores or erases the cache of a slot's last text (`?action=save`, `restore` or `erase`).", slot_fields, openai,
       false, false, false, true},
      {"GET", "/metrics", metrics, "Counters and histograms in Prometheus's text format.", nullptr, openai, false, true, false,
       true},
      {"GET", "/v1/model", model_facts, "Facts about the model: shapes, hooks, numerics, memory."},
      of_request("/v1/inspect"),
      of_request("/v1/lens"),
      of_request("/v1/heads"),
      of_request("/v1/attribute"),
      of_request("/v1/score", score),
      of_request("/v1/patch"),
      of_request("/v1/steer"),
      {"GET", "/v1/pictures", list_pictures, "The pictures that can be drawn."},
      {"POST", "/v1/pictures/{name}", picture, "One picture, as its numbers or as SVG.", picture_fields},
      {"GET", "/lora-adapters", list_adapters, "The loaded LoRA adapters, with their scales for requests that choose none."},
      {"POST", "/lora-adapters", set_adapter_scales, "Sets each adapter's scale; unlisted adapters get 0.", adapter_scale_fields,
       openai, false, false, true, true},
      {"POST", "/v1/load_lora_adapter", load_adapter, "Loads an adapter from below a folder of --lora-folder.",
       load_adapter_fields, openai, false, false, false, true},
      {"POST", "/v1/unload_lora_adapter", remove_adapter, "Removes an adapter; requests that use it finish first.",
       remove_adapter_fields, openai, false, false, false, true},
      {"GET", "/v1/live", live_model, "The initial prompt of the page at /explain, and the options of its command lines."},
      {"POST", "/v1/live/{request}", inside_request, live_summary.c_str(), live_fields},
      {"GET", "/openapi.json", openapi, "This API as an OpenAPI document.", nullptr, openai, true},
  };
  return table;
}

namespace {

std::vector<std::string> paths_where(bool Route::* holds) {
  std::vector<std::string> paths;
  for (const Route& route : routes())
    if (route.*holds) paths.emplace_back(route.path);
  return paths;
}

}  // namespace

const char* route_of(const std::string& path) {
  for (const Route& route : routes())
    if (matches(route.path, path)) return route.path;
  return nullptr;
}

std::vector<std::string> open_paths() { return paths_where(&Route::open); }
std::vector<std::string> quick_paths() { return paths_where(&Route::quick); }

void answer(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const http::Request& request = exchange->request();
  ErrorForm form = error_form(request.path);
  try {
    std::string allowed, listed;
    for (const Route& route : routes()) {
      if (!matches(route.path, request.path)) continue;
      if (request.method == route.method) {
        form = route.form;
        if (route.admin) check_admin(request);
        if (!route.open && !route.quick) exchange->name_model(service.name());
        if (route.fields == nullptr) return route.handle(service, exchange);
        check_type(request);
        return handle_body(route, service, exchange);
      }
      allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
      listed += route.method + std::string(std::string_view(route.method) == "GET" ? ", HEAD, " : ", ");
    }
    if (allowed.empty())
      throw ApiError(404, "not_found", "there is no " + request.path + " here; /openapi.json lists what is there");
    http::Response response =
        request.method == "OPTIONS"
            ? http::Response{204, "", "", {}}
            : error_response(ApiError(405, "method_not_allowed", request.path + " takes " + allowed + ", not " + request.method),
                             form);
    response.headers.emplace_back("Allow", listed + "OPTIONS");
    exchange->respond(std::move(response));
  } catch (...) {
    exchange->respond(error_response(api_error(std::current_exception()), form));
  }
}

}  // namespace vitrine::serve
