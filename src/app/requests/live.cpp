#include "requests/live.h"

#include <exception>

#include "requests/request.h"

namespace vitrine {

Live::Live(std::string_view model, const EngineOptions& options) : model_(model), engine_(model, options) {}

std::string Live::answer(std::string_view name, const std::string& body) {
  try {
    const Request& request = find_request(name);
    Fields fields(body, request.fields);
    const Host host{.engine = engine_,
                    .name = model_,
                    .run = [this](const auto& work) { work(engine_); },
                    .threads = engine_.context().pool().threads(),
                    .unfinished = &unfinished_};
    return request.answer(host, fields).text(fields);
  } catch (const std::exception& error) {
    return json_text({{"error", {{"message", error.what()}}}});
  }
}

}  // namespace vitrine
