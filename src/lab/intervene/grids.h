#pragma once
// The grid of a recipe: the metric with each of many single changes (ablation, activation patching, path patching).
#include <vector>

#include "intervene/metric.h"
#include "intervene/run.h"
#include "intervene/values.h"

namespace vitrine {

/// What a recipe's grid is measured with.
struct GridRun {
  Engine& engine;
  const Recipe& recipe;
  const RecipePrompts& prompts;
  const Metric& metric;
  const Interventions& base;  // the recipe's own
  SourceValues& values;
  int64_t cell_top;  // most likely tokens that are kept of each cell
  const Turns& turn;
};

/// Measures every cell. `single` receives the edits that make the cell, if the grid has one cell only.
/// Errors: InputError naming the recipe's line for what the model does not have.
InterveneGrid run_grid(const GridRun& run, std::vector<ValueEdit>& single);

}  // namespace vitrine
