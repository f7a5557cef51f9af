// GET /health: whether the server should go on; GET /ready: whether it takes work now.
#include <fmt/format.h>

#include "serve/endpoints.h"

namespace vitrine::serve {
namespace {

SchedulerStats stats_unless_draining(Service& service) {
  SchedulerStats stats = service.scheduler().stats();
  if (stats.draining) throw ApiError(503, "draining", "this server is about to end and takes no new work");
  return stats;
}

void answer_ok(const std::shared_ptr<http::Exchange>& exchange) { exchange->respond(json_response({{"status", "ok"}})); }

}  // namespace

void health(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const SchedulerStats stats = stats_unless_draining(service);
  if (service.is_stuck(stats))
    throw ApiError(503, "stuck",
                   fmt::format("a step of the model or a job takes {:.0f} seconds already; --stuck-seconds allows {:g}",
                               stats.busy_seconds_now, service.options().stuck_seconds));
  answer_ok(exchange);
}

void ready(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const SchedulerStats stats = stats_unless_draining(service);
  if (stats.waiting >= service.scheduling().waiting)
    throw ApiError(503, "queue_full",
                   fmt::format("{} of {} places in the queue are taken", stats.waiting, service.scheduling().waiting));
  answer_ok(exchange);
}

}  // namespace vitrine::serve
