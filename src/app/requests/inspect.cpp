// inspect: any intermediates of one run by name, as JSON or as a safetensors file.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/shell_word.h"
#include "hooks/spliced_model.h"
#include "hooks/trace.h"
#include "hooks/values_json.h"
#include "io/safetensors.h"
#include "requests/shared.h"

namespace vitrine {
namespace {

constexpr size_t kMostFileBytes = size_t{256} << 20;  // of the values

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

RequestAnswer inspected(const Host& host, Fields& fields) {
  const std::vector<int32_t> ids = read_prompt(host, fields).ids;
  const std::vector<std::string> hooks = fields.texts("hooks");
  const std::string format = fields.text("format").value_or("json");
  if (format != "json" && (format != "safetensors" || !host.files))
    throw invalid("format", "\"format\" is \"" + format + "\"; expected json" + (host.files ? " or safetensors" : ""));
  const OrderedJson* edits = fields.find("edits");
  if (hooks.empty()) throw invalid("hooks", "\"hooks\" is empty; name hooks, such as blocks.*.hook_resid_post");
  std::optional<Recorder> recorder;
  host.run([&](Engine& engine) {
    std::vector<HookQuery> queries;
    for (const std::string& hook : hooks) queries.push_back(parse_hook_query(hook));
    const size_t bytes = capture_bytes(plan_captures(engine.model(), queries, std::ssize(ids)));
    const size_t most = format == "json" ? kMostNumbers * sizeof(float) : kMostFileBytes;
    if (bytes > most)
      throw invalid("hooks", fmt::format("\"hooks\" asks for {} numbers, and an answer in {} holds {}; take slices such as "
                                         "[positions=-1]{}",
                                         bytes / sizeof(float), format, most / sizeof(float),
                                         format == "json" && host.files ? ", or \"format\": \"safetensors\"" : ""));
    const std::unique_ptr<Interventions> planned = planned_edits(engine, edits, ids);
    recorder = trace_to_memory(engine, ids, hooks, planned.get());
  });
  if (format == "safetensors") return {.json = nullptr, .file = safetensors_of(*recorder, ids)};
  RequestAnswer answer{.json = tokens_json(host.engine, ids), .hooks = hooks_text(*recorder)};
  const bool of_files = std::ranges::none_of(recorder->order(), of_autoencoder);
  if ((edits == nullptr || edits->empty()) && of_files) answer.add_command(host, trace_words(hooks), ids);
  return answer;
}

}  // namespace

std::vector<std::string> trace_words(const std::vector<std::string>& hooks) {
  std::vector<std::string> words = {"trace"};
  for (const std::string& hook : hooks) words.insert(words.end(), {"--hooks", shell_word(hook)});
  words.insert(words.end(), {"--out", "trace.safetensors"});
  return words;
}

Request inspect_request() {
  using namespace type;
  Field hooks{"hooks", text | texts,
              "Names of intermediates as in `vitrine trace --hooks`: globs, aliases, and slices such as "
              "[heads=1,positions=-1]."};
  hooks.required = true;
  return {"inspect", "Intermediates of one run by name.",
          joined({prompt_fields(),
                  {hooks, {"format", text, "json (the default), or safetensors: the answer is a file."}, edits_field()}}),
          inspected};
}

}  // namespace vitrine
