// GET /v1/live, POST /v1/live/{request}: what the page at /explain asks, as a live page asks its own engine (src/app/live).
#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/shell_word.h"
#include "intervene/request.h"
#include "live/requests.h"
#include "picture/data/request.h"
#include "serve/endpoints.h"
#include "serve/hook_values.h"
#include "serve/inside.h"
#include "serve/sampling_fields.h"

namespace vitrine::serve {
namespace {

// In the order of the documents.
const std::vector<std::pair<std::string, std::vector<Field>>>& live_tables() {
  static const std::vector<std::pair<std::string, std::vector<Field>>> tables = [] {
    using namespace type;
    using Table = std::vector<Field>;
    const Table model = {{"model", text, "The model's name, an alias, or nothing."},
                         Field::refused("lora", "the page shows the model without the adapters of requests", "[[]]")};
    const Field text_or_ids{"prompt", text | integers | object,
                            "A text, or ids, which are used exactly as given; for `patch` also as in a recipe."};
    const Table prompt = {text_or_ids,
                          {"add_special", boolean, "Add BOS and EOS to a text if the tokenizer does. Default: true."}};
    const Field layer{"layer", integer, "The layer.", Use::honored, 0, 1e6},
        position{"position", integer, "The position.", Use::honored, 0, 1e9},
        seed{"seed", integer, "Random seed. Default: 0.", Use::honored, 0, 9e15},
        top{"top",        integer, "Number of most likely tokens. Default: 20 for `next`, 5 for `units`, otherwise 10.",
            Use::honored, 1,       1e6};
    const Table drawn = joined({{edits_field()}, sampling_number_fields(), {seed}});
    return std::vector<std::pair<std::string, Table>>{
        {"document", joined({model,
                             prompt,
                             {{"pictures", texts, "Only these pictures, without steps. Default: all, and the steps."},
                              {"gradients", boolean, "Include the pictures that run the model backward. Default: true."},
                              layer,
                              {"head", integer, "The head of pictures of one head.", Use::honored, 0, 1e6},
                              position}})},
        {"next", joined({model, prompt, drawn, {top}})},
        {"generate",
         joined({model, prompt, drawn, {{"max_tokens", integer, "Maximum new tokens. Default: 16.", Use::honored, 1, 4096}}})},
        {"inspect", joined({model, prompt, {edits_field(), {"hooks", texts, "Names of intermediates, as in /v1/inspect."}}})},
        {"units", joined({model,
                          prompt,
                          {layer,
                           position,
                           {"units", integer, "Number of the most active hidden units. Default: 8.", Use::honored, 1, 64},
                           top}})},
        {"patch", joined({model, {text_or_ids}, recipe_fields(), {top}})},
        {"train", joined({model,
                          {text_or_ids,
                           {"target", text, "What should follow the prompt."},
                           {"rate", number, "The learning rate. Default: 0.003.", Use::honored, 0, 1e6},
                           top}})}};
  }();
  return tables;
}

// The fields of one request. Errors: ApiError 404 for one that is not known.
const std::vector<Field>& fields_of_live(const std::string& request) {
  std::string known;
  for (const auto& [name, fields] : live_tables()) {
    if (name == request) return fields;
    known += (known.empty() ? "" : ", ") + name;
  }
  throw ApiError(404, "not_found", "there is no request \"" + request + "\" of a live page; there are " + known);
}

// What would read a file of this machine, or mean two heads, is refused before anything runs.
void check_changes(const Fields& fields, const std::string& request, int64_t n_heads) {
  OrderedJson json = OrderedJson::object();
  if (request == "patch")
    for (const char* key : kRecipeKeys)
      if (const OrderedJson* value = fields.find(key)) json[key] = *value;
  const bool takes_edits = request == "next" || request == "generate" || request == "inspect";
  const OrderedJson* edits = takes_edits ? fields.find("edits") : nullptr;
  if (edits != nullptr && !edits->empty()) {
    refuse_head_numbers(*edits, n_heads);
    check_recipe(recipe_of_edits(*edits, {0}));
  }
  if (json.empty()) return;
  refuse_head_numbers(json, n_heads);
  check_recipe(recipe_of_request(json));
}

}  // namespace

// Each field once, with the requests that take it.
const std::vector<Field>& live_fields() {
  static const std::vector<Field> table = [] {
    std::vector<Field> fields;
    for (const auto& [request, own] : live_tables())
      for (const Field& field : own)
        if (std::ranges::none_of(fields, [&](const Field& listed) { return listed.name == field.name; })) fields.push_back(field);
    for (Field& field : fields) {
      std::string takers;
      size_t count = 0;
      for (const auto& [request, own] : live_tables()) {
        if (std::ranges::none_of(own, [&](const Field& one) { return one.name == field.name; })) continue;
        takers += (takers.empty() ? "`" : ", `") + request + "`";
        ++count;
      }
      if (field.use == Use::honored && count < live_tables().size()) field.about = takers + ": " + field.about;
    }
    return fields;
  }();
  return table;
}

void live(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const std::string& path = exchange->request().path;
  const std::string request = path.substr(path.rfind('/') + 1);
  Fields fields(exchange->request().body, fields_of_live(request), service.options().strict_fields);
  service.model_named(fields.text("model"));
  check_changes(fields, request, service.engine().shape().n_heads);
  InsideRun run(service, exchange, {});
  LiveModel model{.engine = service.engine(),
                  .name = service.engine().name(),
                  .run = [&run](const std::function<void(Engine&)>& work) { run(work); },
                  .gone = &run.gone()};
  std::unique_lock training(service.training(), std::defer_lock);
  if (request == "train") {
    if (!training.try_lock()) {
      ApiError busy(429, "rate_limit_exceeded", "a step of training is under way; there is memory for one at a time");
      busy.retry_after = 1;
      throw busy;
    }
    // The streams keep the other half.
    run([&](Engine& engine) { model.threads = std::max(1, engine.context().pool().threads() / 2); });
  }
  std::string answer = live_answer(model, request, fields.all());
  if (!fields.ignored().empty()) {
    answer.pop_back();
    answer += ",\"ignored_fields\":" + json_text(fields.ignored()) + "}";
  }
  exchange->respond({200, "application/json", std::move(answer), {}});
}

void live_model(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const Engine& engine = service.engine();
  OrderedJson prompt = kUsualPrompt;
  if (!engine.has_tokenizer()) {
    prompt = OrderedJson::array();
    for (int64_t id = 0; id < std::min<int64_t>(8, engine.shape().vocab_size); ++id) prompt.push_back(id);
  }
  const std::string& options = service.options().command_options;
  exchange->respond(json_response({{"model", service.name()},
                                   {"prompt", std::move(prompt)},
                                   {"command_model", "--model " + shell_word(engine.name())},
                                   {"command_options", options}}));
}

}  // namespace vitrine::serve
