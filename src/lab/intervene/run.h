#pragma once
// Running a recipe: what the model expects before and after, how far apart that is, and a metric for every cell of a grid.
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "intervene/plan.h"
#include "runtime/engine.h"

namespace vitrine {

/// Runs a piece of work (a cell of a grid) and returns when it is done; between two pieces the engine may do other things.
using Turns = std::function<void(const std::function<void()>&)>;

struct InterveneOptions {
  int64_t top = 10;
  bool all_positions = false;  // predictions and KL after every token, not only at the metric's position
  size_t memory = 0;           // bytes that kept values may take; 0: what the system has left
  int64_t cell_top = 0;        // most likely tokens to keep of every cell of a grid, at the metric's position
  Turns turn = {};             // none: at once
};

/// A grid of runs: one number for each cell.
struct InterveneGrid {
  std::string kind;                                    // "patch", "ablate" or "path"
  std::string what;                                    // "resid_pre", …; of a path "senders"
  std::string row_axis, column_axis;                   // "layer"; "position", "head" or "sender"
  std::vector<int64_t> rows;                           // layers
  std::vector<std::string> columns;                    // positions "0" …, heads "0" …, "mlp"
  std::vector<int64_t> positions;                      // of each column, if they are positions
  std::vector<std::optional<double>> values;           // [row, column]: the metric; nothing where there is no such cell
  std::vector<std::vector<TokenLogprob>> most_likely;  // [row, column] with cell_top: what the cell's run expects; else empty
  std::string recipe_head;                             // what the recipes of all cells begin with
  std::vector<std::string> recipe_cells;               // and how each goes on; empty where there is no such cell

  size_t cell(size_t row, size_t column) const { return row * columns.size() + column; }
};

/// A recipe that makes this one cell: its run's metric is the cell's value.
std::string recipe_text(const InterveneGrid& grid, size_t row, size_t column);

/// As a recipe names it.
const char* name_of(MetricSpec::Kind kind);

struct MetricValues {
  MetricSpec::Kind name = {};
  std::vector<int32_t> tokens;
  std::optional<int64_t> position;       // none: of all
  std::optional<double> clean, corrupt;  // of the two prompts, unedited; corrupt: if there is one
  std::optional<double> before, after;   // of the prompt that runs

  /// (value - corrupt) / (clean - corrupt): 0 as the corrupt run, 1 as the clean one. Nothing if the two are the same, or one.
  std::optional<double> normalized(double value) const;
  std::optional<double> after_normalized() const { return after ? normalized(*after) : std::nullopt; }
  VITRINE_MEMBERS(name, tokens, position, clean, corrupt, before, after, after_normalized());
};

struct InterveneResult {
  Recipe recipe;
  RecipePrompts prompts;
  struct Done {
    std::string recipe;              // the intervention as YAML
    std::vector<std::string> hooks;  // what it edits: "blocks.3.attn.hook_z[heads=7,positions=0:4]"

    VITRINE_MEMBERS(recipe, hooks);
  };
  std::vector<Done> interventions;

  int64_t position = 0;                   // at which predictions, KL and metric are taken, unless all
  std::vector<Prediction> before, after;  // of the prompt that runs; one entry, or one for every position
  std::vector<double> kl;                 // KL(before || after) in nats, at the same positions

  std::optional<MetricValues> metric;
  std::optional<InterveneGrid> grid;
};

/// Runs a recipe on an opened model (`recipe.model` is not looked at).
///
/// before   the unedited run of recipe.prompt, or of recipe.corrupt if that is what runs
/// after    the same with all interventions; of a grid of one cell, with that cell too
/// grid     each cell: the interventions and the cell's own edit
///
/// Activation patching: the cell's value comes from the unedited run of the other prompt. Path patching of one sender, as in
/// Wang et al., arXiv:2211.00593, section 3.1: (1) the prompt runs with every head's z and, unless recomputed, every MLP's output
/// held at its value of that same run, and the sender's taken from the other prompt; what reaches the receivers is kept;
/// (2) the prompt runs freely with the receivers' inputs replaced by that.
///
/// Errors: InputError, beginning with the place in the recipe, for what the model lacks, tokens that are not one, prompts of
/// unequal length where values are taken position by position, and memory; RunError for NaN, naming the hook.
InterveneResult intervene(Engine& engine, const Recipe& recipe, const InterveneOptions& options = {});

/// The whole result. Pieces are null for prompts given as ids.
nlohmann::ordered_json to_json(const InterveneResult& result, const Engine& engine);

}  // namespace vitrine
