#include "live/live.h"

#include <exception>

#include "base/json.h"
#include "live/requests.h"

namespace vitrine {

Live::Live(std::string_view model, const EngineOptions& options) : model_(model), engine_(model, options) {}

std::string Live::answer(std::string_view request, std::string_view body) {
  try {
    return live_answer({.engine = engine_,
                        .name = model_,
                        .run = [this](const auto& work) { work(engine_); },
                        .threads = engine_.context().pool().threads()},
                       request, parse_ordered_json(body, "the request"));
  } catch (const std::exception& error) {
    return Json{{"error", {{"message", error.what()}}}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

}  // namespace vitrine
