#include "requests/live.h"

#include <exception>
#include <utility>

#include "requests/request.h"

namespace vitrine {

Live::Live(std::string_view model, const EngineOptions& options) : model_(model), engine_(model, options) {}

std::string Live::answer(std::string_view name, const std::string& body) {
  file_ = {};
  try {
    const Request& request = find_request(name);
    Fields fields(body, request.fields);
    const Host host{.engine = engine_,
                    .name = model_,
                    .run = [this](const auto& work) { work(engine_); },
                    .threads = engine_.context().pool().threads(),
                    .unfinished = &unfinished_,
                    .learner = &learner_,
                    .files = true};
    RequestAnswer made = request.answer(host, fields);
    file_ = std::move(made.file);
    if (!file_.empty()) made.json = {{"bytes", file_.size()}};
    return std::move(made).text(fields);
  } catch (const std::exception& error) {
    return json_text({{"error", {{"message", error.what()}}}});
  }
}

}  // namespace vitrine
