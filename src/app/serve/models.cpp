// GET /v1/models and /v1/models/{id}. A model has the members of OpenAI's and of Anthropic's answers.
#include <chrono>

#include "base/utc_time.h"
#include "serve/endpoints.h"
#include "serve/model_lists.h"
#include "serve/process.h"

namespace vitrine::serve {
namespace {

// What Anthropic's clients read of a model.
void add_anthropic_members(OrderedJson& json, std::time_t created) {
  json["type"] = "model";
  json["display_name"] = json["id"];
  json["created_at"] = utc_time(std::chrono::system_clock::from_time_t(created));
}

OrderedJson model_json(const Service& service) {
  const ModelShape& shape = service.engine().shape();
  const OpenedModel& opened = service.engine().opened();
  int64_t parameters = 0;
  for (const auto& [name, tensor] : opened.checkpoint.tensors()) {
    int64_t count = 1;
    for (const int64_t size : tensor.shape) count *= size;
    parameters += count;
  }
  OrderedJson json = {{"id", service.name()},
                      {"object", "model"},
                      {"created", service.started()},
                      {"owned_by", "vitrine"},
                      {"aliases", service.options().aliases},
                      {"max_model_len", shape.context_length},
                      {"meta",
                       {{"family", shape.family},
                        {"vocab_type", opened.gguf != nullptr ? 1 : 2},
                        {"n_vocab", shape.vocab_size},
                        {"n_ctx_train", shape.context_length},
                        {"n_embd", shape.d_model},
                        {"n_params", parameters},
                        {"size", opened.checkpoint.bytes()}}}};
  add_anthropic_members(json, service.started());
  return json;
}

OrderedJson adapter_json(const Service& service, const AdapterList::Entry& entry) {
  OrderedJson json = {{"id", entry.name},
                      {"object", "model"},
                      {"created", service.started()},
                      {"owned_by", "vitrine"},
                      {"root", entry.name},
                      {"parent", service.name()},
                      {"max_model_len", service.engine().shape().context_length}};
  add_anthropic_members(json, service.started());
  return json;
}

// Of one that is not loaded: its files have not been read.
OrderedJson unloaded_json(const ServedModel& model) {
  const std::time_t started = process_started();
  OrderedJson json = {{"id", model.name}, {"object", "model"}, {"created", started}, {"owned_by", "vitrine"}};
  json["meta"] = {{"size", model.bytes}};
  add_anthropic_members(json, started);
  return json;
}

}  // namespace

OrderedJson models_json(std::span<const ServedModel> models) {
  OrderedJson list = OrderedJson::array();
  const auto add = [&](OrderedJson json, bool loaded) {
    if (models.size() > 1) json["loaded"] = loaded;
    list.push_back(std::move(json));
  };
  for (const ServedModel& model : models) {
    if (model.service == nullptr) {
      add(unloaded_json(model), false);
      continue;
    }
    add(model_json(*model.service), true);
    for (const AdapterList::Entry& entry : model.service->adapters().all()) add(adapter_json(*model.service, entry), true);
  }
  const OrderedJson first = list.front()["id"], last = list.back()["id"];
  return {{"object", "list"}, {"data", std::move(list)}, {"has_more", false}, {"first_id", first}, {"last_id", last}};
}

const Field& model_field() {
  static const Field field{"model", type::text, "The model's name, an alias, or nothing."};
  return field;
}

void models(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  exchange->respond(json_response(models_json(only(service))));
}

void model(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const std::string wanted = exchange->request().path.substr(std::string("/v1/models/").size());
  if (const auto entry = service.adapters().named(wanted)) return exchange->respond(json_response(adapter_json(service, *entry)));
  service.model_named(wanted);
  exchange->respond(json_response(model_json(service)));
}

}  // namespace vitrine::serve
