// The result of a recipe as one document.
#include <cmath>

#include "intervene/run.h"

namespace vitrine {
namespace {

OrderedJson piece_json(const Engine& engine, bool from_text, int32_t id) {
  const std::optional<std::string> piece = from_text ? engine.piece(id) : std::nullopt;
  return piece ? OrderedJson(*piece) : OrderedJson(nullptr);
}

OrderedJson number_json(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson prompt_json(const Engine& engine, const PromptSpec& prompt, const std::vector<int32_t>& ids) {
  OrderedJson pieces = nullptr;
  if (!prompt.from_tokens) {
    pieces = OrderedJson::array();
    for (const int32_t id : ids) pieces.push_back(piece_json(engine, true, id));
  }
  return {{"text", prompt.from_tokens ? OrderedJson(nullptr) : OrderedJson(prompt.text)}, {"tokens", ids}, {"pieces", pieces}};
}

OrderedJson predictions_json(const Engine& engine, bool from_text, const std::vector<Prediction>& predictions) {
  OrderedJson list = OrderedJson::array();
  for (const Prediction& prediction : predictions) {
    OrderedJson top = OrderedJson::array();
    for (const TokenLogprob& entry : prediction.top)
      top.push_back({{"token", entry.token},
                     {"piece", piece_json(engine, from_text, entry.token)},
                     {"logprob", entry.logprob},
                     {"prob", std::exp(static_cast<double>(entry.logprob))}});
    list.push_back({{"position", prediction.position}, {"top", std::move(top)}});
  }
  return list;
}

const char* metric_name(MetricSpec::Kind kind) {
  switch (kind) {
    case MetricSpec::Kind::logit_difference: return "logit_difference";
    case MetricSpec::Kind::logprob: return "logprob";
    case MetricSpec::Kind::kl: return "kl";
    case MetricSpec::Kind::loss: return "loss";
    default: return "none";
  }
}

OrderedJson metric_json(const InterveneResult& r, const Engine& engine, bool from_text) {
  if (r.recipe.metric.kind == MetricSpec::Kind::none) return nullptr;
  OrderedJson pieces = OrderedJson::array();
  for (const int32_t id : r.metric_tokens) pieces.push_back(piece_json(engine, from_text, id));
  const bool whole = r.recipe.metric.kind == MetricSpec::Kind::loss;
  return {{"name", metric_name(r.recipe.metric.kind)},
          {"tokens", r.metric_tokens},
          {"pieces", pieces},
          {"position", whole ? OrderedJson(nullptr) : OrderedJson(r.position)},
          {"clean", number_json(r.metric_clean)},
          {"corrupt", number_json(r.metric_corrupt)},
          {"before", number_json(r.metric_before)},
          {"after", number_json(r.metric_after)},
          {"after_normalized", number_json(r.metric_after ? r.normalized(*r.metric_after) : std::nullopt)}};
}

OrderedJson grid_json(const InterveneResult& r) {
  const InterveneGrid& grid = *r.grid;
  OrderedJson values = OrderedJson::array(), shares = OrderedJson::array(), recipes = OrderedJson::array();
  for (size_t row = 0; row < grid.rows.size(); ++row) {
    OrderedJson v = OrderedJson::array(), n = OrderedJson::array(), c = OrderedJson::array();
    for (size_t column = 0; column < grid.columns.size(); ++column) {
      const std::optional<double> value = grid.values[grid.cell(row, column)];
      const std::string& cell = grid.recipe_cells[grid.cell(row, column)];
      v.push_back(number_json(value));
      n.push_back(number_json(value ? r.normalized(*value) : std::nullopt));
      c.push_back(cell.empty() ? OrderedJson(nullptr) : OrderedJson(cell));
    }
    values.push_back(std::move(v));
    shares.push_back(std::move(n));
    recipes.push_back(std::move(c));
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

OrderedJson to_json(const InterveneResult& r, const Engine& engine) {
  const bool from_text = !(r.recipe.run_corrupt ? *r.recipe.corrupt : r.recipe.prompt).from_tokens;
  OrderedJson interventions = OrderedJson::array();
  for (const InterveneResult::Done& done : r.interventions)
    interventions.push_back({{"recipe", done.text}, {"hooks", done.hooks}});
  return {{"model", engine.name()},
          {"prompt", prompt_json(engine, r.recipe.prompt, r.prompts.clean)},
          {"corrupt", r.recipe.corrupt ? prompt_json(engine, *r.recipe.corrupt, r.prompts.corrupt) : OrderedJson(nullptr)},
          {"run", r.recipe.run_corrupt ? "corrupt" : "clean"},
          {"interventions", std::move(interventions)},
          {"before", predictions_json(engine, from_text, r.before)},
          {"after", predictions_json(engine, from_text, r.after)},
          {"kl", r.kl},
          {"metric", metric_json(r, engine, from_text)},
          {"grid", r.grid ? grid_json(r) : OrderedJson(nullptr)},
          {"recipe", to_yaml(r.recipe)}};
}

}  // namespace vitrine
