// patch: a recipe of `vitrine intervene`.
#include "intervene/run.h"
#include "requests/shared.h"

namespace vitrine {
namespace {

RequestAnswer patched(const Host& host, Fields& fields) {
  const Recipe recipe = read_recipe(fields, host.engine.shape().n_heads);
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
  using namespace type;
  Field prompt{"prompt", text | integers | object, "As in a recipe; a list of ids means {\"tokens\": ids}."};
  prompt.required = true;
  return {"patch", "Ablation, patching and steering, as a recipe of vitrine intervene.",
          joined({{prompt}, recipe_fields(), {top_field("Number of most likely tokens before and after. Default: 10.", 100)}}),
          patched};
}

}  // namespace vitrine
