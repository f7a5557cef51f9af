// Changes of the model. Requests read no files.
#include <fmt/format.h>

#include <algorithm>

#include "intervene/plan.h"
#include "requests/shared.h"

namespace vitrine {

// Places of interventions, and prompts that they take values from: all are planned while others wait.
constexpr size_t kMostChanges = 1024;

Field edits_field() {
  return {"edits", type::list, "Changes to the model, in the format of the list interventions in docs/intervene.md."};
}

std::unique_ptr<Interventions> planned_edits(Engine& engine, const OrderedJson* edits, const std::vector<int32_t>& ids) {
  if (edits == nullptr || edits->empty()) return nullptr;
  const OrderedJson recipe = {{"prompt", {{"tokens", ids}}}, {"interventions", *edits}};
  return planned(engine, checked_recipe(recipe, "edits", engine.shape().n_heads), ids);
}

Recipe checked_recipe(const OrderedJson& json, const std::string& name, int64_t n_heads) {
  refuse_head_numbers(json, n_heads);
  Recipe recipe = recipe_of(YamlValue::parse(json_text(json), name), name);  // JSON is YAML
  const auto refuse = [](const std::string& field, const std::string& what) {
    throw invalid(field, "\"" + field + "\" names " + what + "; requests read no files. Use vitrine intervene",
                  "unsupported_parameter");
  };
  if (!recipe.model.empty()) refuse("model", "a model");
  if (!recipe.adapter.empty()) refuse("adapter", "an adapter");
  if (!recipe.saes.empty()) refuse("saes", "a folder");
  size_t changes = 0;
  for (const Intervention& one : recipe.interventions) {
    if (one.target == Intervention::Target::sae) refuse("sae", "a folder");
    if (!one.vector.file.empty()) refuse("vector.file", "a file");
    changes += std::max<size_t>(one.of.size(), 1) * std::max<size_t>(one.positions.size(), 1) + one.prompts.size();
  }
  if (changes > kMostChanges)
    throw invalid("",
                  fmt::format("the request makes {} changes to the model and may make {}; name layers, heads and positions by "
                              "ranges, such as \"0:8\" or \"*\"",
                              changes, kMostChanges));
  return recipe;
}

void refuse_head_numbers(const OrderedJson& json, int64_t n_heads, const std::string& key) {
  if (key == "head" && json.is_number_float()) {
    const std::string text = json_text(json);
    const size_t point = text.find('.');
    if (point + 2 == text.size() && text.back() != '0' && (text.back() - '0') * 10 < n_heads)
      throw invalid(key, "\"head\" is the number " + text + ", which in JSON is also " + text + "0; write it as a string",
                    "invalid_type");
  }
  if (json.is_object())
    for (const auto& [name, value] : json.items()) refuse_head_numbers(value, n_heads, name);
  if (json.is_array())
    for (const OrderedJson& value : json) refuse_head_numbers(value, n_heads, key);
}

}  // namespace vitrine
