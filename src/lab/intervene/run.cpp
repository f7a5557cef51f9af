#include "intervene/run.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "intervene/edited_logits.h"
#include "intervene/grids.h"
#include "intervene/metric.h"

namespace vitrine {
namespace {

std::string touched(const ValueEdit& edit) {
  const auto slice = [](const char* name, const HookRequest::Range& range) -> std::string {
    if (range.first == 0 && range.end == std::numeric_limits<int64_t>::max()) return "";
    if (range.end == range.first + 1) return std::string(name) + "=" + std::to_string(range.first);
    const std::string end = range.end == std::numeric_limits<int64_t>::max() ? "" : std::to_string(range.end);
    return std::string(name) + "=" + std::to_string(range.first) + ":" + end;
  };
  std::string inside = slice("heads", edit.heads);
  const std::string positions = slice("positions", edit.positions);
  if (!inside.empty() && !positions.empty()) inside += ",";
  inside += positions;
  return edit.hook + (inside.empty() ? "" : "[" + inside + "]");
}

// Predictions of both runs and their distance, at the given positions.
void compare(Engine& engine, std::span<const int32_t> ids, Interventions& edits, std::span<const int64_t> rows, int64_t top,
             InterveneResult& result) {
  Interventions none;
  const auto frame = engine.context().frame();
  const Step step = Step::of(ids);
  const Tensor before = residual_of(engine, step, none), after = residual_of(engine, step, edits);
  const auto n = static_cast<size_t>(std::min(top, engine.shape().vocab_size));
  const size_t each = rows_at_once(edits, rows.size());
  for (size_t first = 0; first < rows.size(); first += each) {
    const auto scratch = engine.context().frame();
    const auto part = rows.subspan(first, std::min(each, rows.size() - first));
    const Tensor p = checked_logits(engine, step, before, none, part);
    const Tensor q = checked_logits(engine, step, after, edits, part);
    for (int64_t i = 0; i < p.rows(); ++i) {
      const std::span<const float> p_row(p.row<float>(i), static_cast<size_t>(p.row_size()));
      const std::span<const float> q_row(q.row<float>(i), static_cast<size_t>(q.row_size()));
      result.before.push_back({part[static_cast<size_t>(i)], top_logprobs(p_row, n)});
      result.after.push_back({part[static_cast<size_t>(i)], top_logprobs(q_row, n)});
      result.kl.push_back(kl_divergence(p_row, q_row));
    }
  }
}

}  // namespace

std::string recipe_text(const InterveneGrid& grid, size_t row, size_t column) {
  const std::string& cell = grid.recipe_cells.at(grid.cell(row, column));
  return cell.empty() ? std::string() : grid.recipe_head + cell;
}

std::optional<double> MetricValues::normalized(double value) const {
  if (!clean || !corrupt) return {};
  const double range = *clean - *corrupt;
  if (!(std::abs(range) > 1e-12)) return {};
  return (value - *corrupt) / range;
}

InterveneResult intervene(Engine& engine, const Recipe& recipe, const InterveneOptions& options) {
  const Turns turn = options.turn ? options.turn : [](const std::function<void()>& work) { work(); };
  InterveneResult result;
  result.recipe = recipe;
  RecipePrompts& prompts = result.prompts;
  prompts.clean = ids_of(engine, recipe.prompt);
  if (recipe.corrupt) prompts.corrupt = ids_of(engine, *recipe.corrupt);
  prompts.run_corrupt = recipe.run_corrupt;
  prompts.memory = options.memory;
  const std::vector<int32_t>& ids = prompts.run();

  std::optional<Metric> metric;
  turn([&] { metric.emplace(engine, recipe, prompts); });
  result.position = metric->position();

  SourceValues values(engine, options.memory);
  Interventions edits;
  for (const Intervention& intervention : recipe.interventions) {
    std::vector<ValueEdit> planned;
    turn([&] { planned = plan_edits(engine, intervention, prompts, values); });
    InterveneResult::Done done{to_yaml(intervention), {}};
    for (const ValueEdit& edit : planned) done.hooks.push_back(touched(edit));
    result.interventions.push_back(std::move(done));
    edits.append(std::move(planned));
  }

  if (recipe.grid || recipe.paths) {
    std::vector<ValueEdit> single;
    result.grid = run_grid({engine, recipe, prompts, *metric, edits, values, options.cell_top, turn}, single);
    edits.append(std::move(single));
  }

  std::vector<int64_t> rows = {result.position};
  if (options.all_positions) {
    rows.resize(ids.size());
    std::iota(rows.begin(), rows.end(), 0);
  }
  turn([&] { compare(engine, ids, edits, rows, options.top, result); });
  if (recipe.metric.kind == MetricSpec::Kind::none) return result;
  MetricValues& measured = result.metric.emplace();
  measured.name = recipe.metric.kind;
  measured.tokens = metric->tokens();
  if (recipe.metric.kind != MetricSpec::Kind::loss) measured.position = result.position;
  turn([&] {
    measured.clean = metric->of(prompts.clean);
    if (recipe.corrupt) measured.corrupt = metric->of(prompts.corrupt);
    measured.after = metric->of(ids, edits);
  });
  measured.before = prompts.run_corrupt ? measured.corrupt : measured.clean;
  return result;
}

}  // namespace vitrine
