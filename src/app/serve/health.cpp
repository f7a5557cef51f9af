// GET /health: whether the server should go on; GET /ready: whether it takes work now.
#include <fmt/format.h>

#include "serve/endpoints.h"
#include "serve/model_lists.h"

namespace vitrine::serve {
namespace {

SchedulerStats stats_unless_draining(Service& service) {
  SchedulerStats stats = service.scheduler().stats();
  if (stats.draining) throw ApiError(503, "draining", "this server is about to end and takes no new work");
  return stats;
}

}  // namespace

OrderedJson health_json(std::span<const ServedModel> models) {
  for (const ServedModel& model : models) {
    if (model.service == nullptr) continue;
    const SchedulerStats stats = stats_unless_draining(*model.service);
    if (model.service->is_stuck(stats))
      throw ApiError(
          503, "stuck",
          fmt::format("a step of the model {}or a job takes {:.0f} seconds already; --stuck-seconds allows {:g}",
                      models.size() > 1 ? model.name + " " : "", stats.busy_seconds_now, model.service->options().stuck_seconds));
  }
  return {{"status", "ok"}};
}

OrderedJson ready_json(std::span<const ServedModel> models) {
  for (const ServedModel& model : models) {
    if (model.service == nullptr) continue;
    const SchedulerStats stats = stats_unless_draining(*model.service);
    if (const int64_t places = model.service->scheduling().waiting; stats.waiting >= places)
      throw ApiError(503, "queue_full",
                     fmt::format("{} of {} places in the queue{} are taken", stats.waiting, places,
                                 models.size() > 1 ? " of the model " + model.name : ""));
  }
  return {{"status", "ok"}};
}

void health(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  exchange->respond(json_response(health_json(only(service))));
}

void ready(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  exchange->respond(json_response(ready_json(only(service))));
}

}  // namespace vitrine::serve
