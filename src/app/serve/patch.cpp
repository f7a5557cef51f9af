// POST /v1/patch: a recipe of `vitrine intervene`. POST /v1/steer: the same continuation without and with changes.
#include <functional>

#include "base/error.h"
#include "generate/generate.h"
#include "hooks/listening.h"
#include "intervene/request.h"
#include "intervene/run.h"
#include "serve/endpoints.h"
#include "serve/inside.h"
#include "serve/lora.h"
#include "serve/openai_answer.h"
#include "serve/sampling_fields.h"

namespace vitrine::serve {
namespace {

// A token at a time, so that streams get their steps in between.
Generation continued(InsideRun& run, const std::vector<int32_t>& ids, const GenerateOptions& options, Listener* listener) {
  std::optional<TokenLoop> loop;
  run([&](Engine& engine) { loop.emplace(engine, ids, options); });
  while (!loop->done())
    run([&](Engine& engine) {
      const std::optional<Listening> listening =
          listener == nullptr ? std::nullopt : std::optional<Listening>(std::in_place, engine.context(), *listener);
      loop->next();
    });
  return std::move(*loop).take();
}

OrderedJson made_json(const Generation& made) {
  return {{"text", made.text}, {"tokens", made.tokens}, {"logprobs", made.logprobs}, {"finish_reason", made.finish_reason}};
}

}  // namespace

const std::vector<Field>& patch_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    Field prompt{"prompt", text | integers | object, "As in a recipe; a list of ids means {\"tokens\": ids}."};
    prompt.required = true;
    return joined({{{"model", text, "The model's name, an alias, or nothing."}, prompt},
                   recipe_fields(),
                   {lora_fields()[0],
                    {"top", integer, "Number of most likely tokens before and after. Default: 10.", Use::honored, 1, 100}}});
  }();
  return table;
}

void patch(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, patch_fields(), service.options().strict_fields);
  service.model_named(fields.text("model"));
  OrderedJson json = OrderedJson::object();
  for (const char* key : kRecipeKeys)
    if (const OrderedJson* value = fields.find(key)) json[key] = *value;
  refuse_head_numbers(json, service.engine().shape().n_heads);
  InterveneOptions options;
  options.top = fields.integer("top").value_or(10);
  options.all_positions = fields.boolean("all_positions", false);
  const Recipe recipe = recipe_of_request(json);
  check_recipe(recipe);
  const ScaledAdapters adapters = read_adapters(fields, service);
  InsideRun run(service, exchange, adapters);
  Engine* engine = nullptr;
  run([&](Engine& whose) { engine = &whose; });
  // A cell of a grid at a time, so that streams get their steps in between.
  options.turn = [&run](const std::function<void()>& work) { run([&](Engine&) { work(); }); };
  OrderedJson result = to_json(intervene(*engine, recipe, options), *engine);
  result["yaml"] = to_yaml(recipe);
  result["command"] = command_line(service, {"intervene", "recipe.yaml", "--json"}, adapters);
  add_ignored(fields, result);
  exchange->respond(json_response(result));
}

const std::vector<Field>& steer_fields() {
  static const std::vector<Field> table = [] {
    Field edits = edits_field();
    edits.required = true;
    return joined({inside_prompt_fields(),
                   {edits, {"max_tokens", type::integer, "Maximum new tokens. Default: 40.", Use::honored, 1, 4096}},
                   sampling_fields(),
                   foreign_fields()});
  }();
  return table;
}

void steer(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, steer_fields(), service.options().strict_fields);
  const InsidePrompt prompt = read_prompt(fields, service);
  check_room(service, prompt.ids.size(), "prompt");
  const OrderedJson* edits = fields.find("edits");
  if (edits->empty()) throw invalid("edits", "\"edits\" is empty; expected changes to the model");
  Sampled sampled = read_sampling(fields, service, openai_sampling());
  sampled.options.max_tokens = fields.integer("max_tokens").value_or(40);
  sampled.options.alone = fields.has("messages");
  sampled.options.drafter = nullptr;  // edits act on rows that a draft would add
  const ScaledAdapters adapters = read_adapters(fields, service);
  InsideRun run(service, exchange, adapters);
  std::unique_ptr<Interventions> planned;
  run([&](Engine& engine) { planned = planned_edits(engine, edits, prompt.ids); });
  OrderedJson json = tokens_json(service.engine(), prompt.ids);
  json["before"] = made_json(continued(run, prompt.ids, sampled.options, nullptr));
  json["after"] = made_json(continued(run, prompt.ids, sampled.options, planned.get()));
  json["seed"] = sampled.options.sampling.seed;
  add_ignored(fields, json);
  exchange->respond(json_response(json));
}

}  // namespace vitrine::serve
