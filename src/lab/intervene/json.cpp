// The result of a recipe as one document.
#include "intervene/run.h"
#include "runtime/token_json.h"

namespace vitrine {
namespace {

OrderedJson prompt_json(const Engine& engine, const PromptSpec& prompt, const std::vector<int32_t>& ids) {
  return vitrine::prompt_json(engine, ids, prompt.from_tokens ? std::nullopt : std::optional(prompt.text));
}

OrderedJson grid_json(const InterveneResult& r) {
  const InterveneGrid& grid = *r.grid;
  OrderedJson values = OrderedJson::array(), shares = OrderedJson::array(), recipes = OrderedJson::array();
  for (size_t row = 0; row < grid.rows.size(); ++row)
    for (OrderedJson* list : {&values, &shares, &recipes}) list->push_back(OrderedJson::array());
  for (size_t i = 0; i < grid.values.size(); ++i) {
    const size_t row = i / grid.columns.size();
    const std::optional<double> value = grid.values[i];
    values[row].push_back(json_of(value));
    shares[row].push_back(json_of(value ? r.metric->normalized(*value) : std::nullopt));
    recipes[row].push_back(grid.recipe_cells[i].empty() ? OrderedJson(nullptr) : OrderedJson(grid.recipe_cells[i]));
  }
  return {{"kind", grid.kind},
          {"what", grid.what},
          {"rows", {{"axis", grid.row_axis}, {"labels", grid.rows}}},
          {"columns", {{"axis", grid.column_axis}, {"labels", grid.columns}}},
          {"values", std::move(values)},
          {"normalized", std::move(shares)},
          {"recipe", {{"head", grid.recipe_head}, {"cells", std::move(recipes)}}}};
}

}  // namespace

const char* name_of(MetricSpec::Kind kind) {
  switch (kind) {
    case MetricSpec::Kind::logit_difference: return "logit_difference";
    case MetricSpec::Kind::logprob: return "logprob";
    case MetricSpec::Kind::kl: return "kl";
    case MetricSpec::Kind::loss: return "loss";
    default: return "none";
  }
}

OrderedJson to_json(const InterveneResult& r, const Engine& engine) {
  const Speller piece = speller_of(engine, !(r.recipe.run_corrupt ? *r.recipe.corrupt : r.recipe.prompt).from_tokens);
  return {{"model", engine.name()},
          {"prompt", prompt_json(engine, r.recipe.prompt, r.prompts.clean)},
          {"corrupt", r.recipe.corrupt ? prompt_json(engine, *r.recipe.corrupt, r.prompts.corrupt) : OrderedJson(nullptr)},
          {"run", r.recipe.run_corrupt ? "corrupt" : "clean"},
          {"interventions", json_of(r.interventions)},
          {"before", json_of(r.before, piece)},
          {"after", json_of(r.after, piece)},
          {"kl", json_of(r.kl)},
          {"metric", json_of(r.metric, piece)},
          {"grid", r.grid ? grid_json(r) : OrderedJson(nullptr)},
          {"recipe", to_yaml(r.recipe)}};
}

}  // namespace vitrine
