// GET /v1/models, /v1/models/{id} and /health.
#include "serve/endpoints.h"

namespace vitrine::serve {
namespace {

OrderedJson model_json(const Service& service) {
  const ModelShape& shape = service.engine().shape();
  const OpenedModel& opened = service.engine().opened();
  int64_t parameters = 0;
  for (const auto& [name, tensor] : opened.checkpoint.tensors()) {
    int64_t count = 1;
    for (const int64_t size : tensor.shape) count *= size;
    parameters += count;
  }
  return {{"id", service.name()},
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
}

}  // namespace

void models(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  exchange->respond(json_response({{"object", "list"}, {"data", OrderedJson::array({model_json(service)})}}));
}

void model(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  service.model_named(exchange->request().path.substr(std::string("/v1/models/").size()));
  exchange->respond(json_response(model_json(service)));
}

void health(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const SchedulerStats stats = service.scheduler().stats();
  if (stats.draining) throw ApiError(503, "draining", "this server is about to end and takes no new work");
  exchange->respond(json_response({{"status", "ok"}}));
}

}  // namespace vitrine::serve
