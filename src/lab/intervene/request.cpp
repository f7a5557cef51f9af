#include "intervene/request.h"

#include <string_view>

#include "intervene/plan.h"

namespace vitrine {
namespace {

// JSON is YAML.
Recipe parsed(const OrderedJson& json, const std::string& name) {
  return recipe_of(YamlValue::parse(json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace), name), name);
}

}  // namespace

Recipe recipe_of_request(const OrderedJson& request) {
  OrderedJson recipe = OrderedJson::object();
  for (const char* key : kRecipeKeys) {
    const auto value = request.find(key);
    if (value == request.end()) continue;
    const bool ids = value->is_array() && (std::string_view(key) == "prompt" || std::string_view(key) == "corrupt");
    recipe[key] = ids ? OrderedJson{{"tokens", *value}} : *value;
  }
  return parsed(recipe, "recipe");
}

Recipe recipe_of_edits(const OrderedJson& edits, const std::vector<int32_t>& ids) {
  return parsed({{"prompt", {{"tokens", ids}}}, {"interventions", edits}}, "edits");
}

std::unique_ptr<Interventions> planned(Engine& engine, const Recipe& recipe, const std::vector<int32_t>& ids) {
  RecipePrompts prompts;
  prompts.clean = ids;
  SourceValues values(engine);
  auto changes = std::make_unique<Interventions>();
  for (const Intervention& one : recipe.interventions) changes->append(plan_edits(engine, one, prompts, values));
  return changes;
}

}  // namespace vitrine
