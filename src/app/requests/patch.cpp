// patch: a recipe of `vitrine intervene`.
#include "intervene/run.h"
#include "requests/shared.h"

namespace vitrine {
namespace {

const std::vector<Field>& recipe_fields() {
  using namespace type;
  static const std::vector<Field> table = [] {
    Field prompt{"prompt", text | integers | object, "As in a recipe; a list of ids means {\"tokens\": ids}."};
    prompt.required = true;
    return std::vector<Field>{
        prompt,
        {"corrupt", text | integers | object, "A second prompt, for patch, path and values from it."},
        {"run", text, "Which prompt is changed: clean or corrupt."},
        {"metric", text | object, "The metric of a run."},
        {"interventions", list | object, "A list of changes, applied in this order."},
        {"patch", text | object, "A grid of runs, each with one value of the other prompt's."},
        {"ablate", text | object, "A grid of runs, each with one part set to zero or its mean."},
        {"path", object, "A grid of senders, along the direct paths to the receivers."},
    };
  }();
  return table;
}

RequestAnswer patched(const Host& host, Fields& fields) {
  OrderedJson json = OrderedJson::object();
  for (const Field& field : recipe_fields())
    if (const OrderedJson* value = fields.find(field.name)) {
      const bool ids = (field.types & type::integers) != 0 && value->is_array();
      json[field.name] = ids ? OrderedJson{{"tokens", *value}} : *value;
    }
  const Recipe recipe = checked_recipe(json, "recipe", host.engine.shape().n_heads);
  InterveneOptions options;
  options.top = fields.integer("top").value_or(10);
  options.all_positions = fields.boolean("all_positions", false);
  options.turn = [&](const std::function<void()>& work) { host.run([&](Engine&) { work(); }); };  // a cell of a grid at a time
  Engine* engine = nullptr;
  host.run([&](Engine& whose) { engine = &whose; });
  RequestAnswer answer{to_json(intervene(*engine, recipe, options), *engine)};
  answer.json["yaml"] = to_yaml(recipe);
  answer.add_command(host, {"intervene", "recipe.yaml", "--json"});
  return answer;
}

}  // namespace

Request patch_request() {
  return {"patch", "Ablation, patching and steering, as a recipe of vitrine intervene.",
          joined({recipe_fields(),
                  {{"all_positions", type::boolean, "Predictions after every token. Default: false."},
                   top_field("Number of most likely tokens before and after. Default: 10.", 100)}}),
          patched};
}

}  // namespace vitrine
