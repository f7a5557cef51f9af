// POST /v1/inspect: any intermediates of one run by name, as JSON or as a safetensors file.
#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "hooks/trace.h"
#include "io/safetensors.h"
#include "serve/endpoints.h"
#include "serve/hook_values.h"
#include "serve/inside.h"
#include "serve/lora.h"

namespace vitrine::serve {
namespace {

constexpr size_t kMostBytes = size_t{256} << 20;  // of the values in a file

std::string safetensors_of(const Recorder& recorder, const std::vector<int32_t>& ids) {
  std::string tokens;
  for (const int32_t id : ids) tokens += (tokens.empty() ? "" : ",") + std::to_string(id);
  std::vector<TensorPlan> plans;
  for (const std::string& name : recorder.order()) plans.push_back({name, DType::f32, recorder.values().at(name).shape});
  const SafetensorsLayout layout = safetensors_layout("the answer", plans, {{"tokens", tokens}});
  std::string file = layout.header;
  file.resize(layout.size);
  for (size_t i = 0; i < plans.size(); ++i)
    std::memcpy(file.data() + layout.begin[i], recorder.values().at(plans[i].name).values.data(), layout.bytes[i]);
  return file;
}

}  // namespace

const std::vector<Field>& inspect_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    Field hooks{"hooks", text | texts,
                "Names of intermediates as in `vitrine trace --hooks`: globs, aliases, and slices such as "
                "[heads=1,positions=-1]."};
    hooks.required = true;
    return joined({inside_prompt_fields(),
                   lora_fields(),
                   {hooks, {"format", text, "json (the default), or safetensors: the answer is a file."}, edits_field()}});
  }();
  return table;
}

void inspect(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, inspect_fields(), service.options().strict_fields);
  const InsidePrompt prompt = read_prompt(fields, service);
  const std::vector<std::string> hooks = fields.texts("hooks");
  const std::string format = fields.text("format").value_or("json");
  if (format != "json" && format != "safetensors")
    throw invalid("format", "\"format\" is \"" + format + "\"; expected json or safetensors");
  const OrderedJson* edits = fields.find("edits");
  if (hooks.empty()) throw invalid("hooks", "\"hooks\" is empty; name hooks, such as blocks.*.hook_resid_post");
  const ScaledAdapters adapters = read_adapters(fields, service);
  InsideRun run(service, exchange, adapters);
  std::optional<Recorder> recorder;
  run([&](Engine& engine) {
    std::vector<HookQuery> queries;
    for (const std::string& hook : hooks) queries.push_back(parse_hook_query(hook));
    const size_t bytes = capture_bytes(plan_captures(engine.model(), queries, std::ssize(prompt.ids)));
    const size_t most = format == "json" ? kMostNumbers * sizeof(float) : kMostBytes;
    if (bytes > most)
      throw invalid("hooks", fmt::format("\"hooks\" asks for {} numbers, and an answer in {} holds {}; take slices such as "
                                         "[positions=-1]{}",
                                         bytes / sizeof(float), format, most / sizeof(float),
                                         format == "json" ? ", or \"format\": \"safetensors\"" : ""));
    const std::unique_ptr<Interventions> planned = planned_edits(engine, edits, prompt.ids);
    recorder = trace_to_memory(engine, prompt.ids, hooks, planned.get());
  });
  if (format == "safetensors") {
    http::Response response{200, "application/octet-stream", safetensors_of(*recorder, prompt.ids), {}};
    response.headers.emplace_back("Content-Disposition", "attachment; filename=\"inspect.safetensors\"");
    return exchange->respond(std::move(response));
  }
  OrderedJson json = tokens_json(service.engine(), prompt.ids);
  if (edits == nullptr || edits->empty()) json["command"] = trace_command(service, hooks, adapters, prompt.ids);
  add_ignored(fields, json);
  exchange->respond({200, "application/json", with_member(json, "hooks", hooks_text(*recorder)), {}});
}

}  // namespace vitrine::serve
