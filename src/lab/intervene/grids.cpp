#include "intervene/grids.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "hooks/trace.h"
#include "model/abilities.h"

namespace vitrine {
namespace {

// A whole value put in place of a hook's.
ValueEdit whole(const std::string& hook, const Recorder::Value& value) {
  ValueEdit edit;
  edit.hook = hook;
  edit.values.assign(value.values.begin(), value.values.end());
  edit.shape = value.shape;
  return edit;
}

// The recipe's interventions and those of a cell are one list: what recalls a hook sees what the later ones left there.
Interventions joined(Interventions edits, std::vector<ValueEdit> more) {
  edits.append(std::move(more));
  return edits;
}

class Grids {
 public:
  explicit Grids(const GridRun& run) : run_(run) {}

  InterveneGrid run(std::vector<ValueEdit>& single) {
    if (run_.recipe.paths) return paths(single);
    return places(single);
  }

 private:
  const std::vector<int32_t>& ids() const { return run_.prompts.run(); }

  void require_equal_lengths(const std::string& where) const {
    if (run_.prompts.clean.size() == run_.prompts.corrupt.size()) return;
    throw InputError((where.empty() ? "" : where + ": ") + "the prompt has " + std::to_string(run_.prompts.clean.size()) +
                     " tokens and the corrupt prompt " + std::to_string(run_.prompts.corrupt.size()) +
                     "; patching goes position by position, so both must have as many. `vitrine tokenize` shows the tokens");
  }

  void begin_recipe(InterveneGrid& grid) const {
    Recipe head = run_.recipe;
    head.grid.reset();
    head.paths.reset();
    grid.recipe_head = to_yaml(head);
  }

  void measure(InterveneGrid& grid, size_t cell, const std::vector<ValueEdit>& edits) const {
    if (run_.cell_top > 0) grid.most_likely.resize(grid.values.size());
    grid.values[cell] =
        run_.metric.of(ids(), joined(run_.base, edits), run_.cell_top, run_.cell_top > 0 ? &grid.most_likely[cell] : nullptr);
  }

  InterveneGrid places(std::vector<ValueEdit>& single) {
    const GridSpec& spec = *run_.recipe.grid;
    const ModelShape& shape = run_.engine.shape();
    const auto rows = static_cast<int64_t>(ids().size());
    if (spec.patch) require_equal_lengths(spec.where);
    const std::string hook = hook_alias(spec.what).value_or(spec.what);
    const bool by_head = hook_shape(run_.engine.model(), "blocks.0." + hook.substr(9), 1).size() == 3;
    if (!by_head && !spec.heads.empty()) throw InputError(spec.where + ": " + spec.what + " has no heads; leave out \"heads\"");

    InterveneGrid grid;
    grid.kind = spec.patch ? "patch" : "ablate";
    grid.what = spec.what;
    grid.row_axis = "layer";
    const std::vector<std::string> all = {"*"};
    grid.rows = indices_of(spec.layers.empty() ? all : spec.layers, shape.n_layers, "layers", spec.where);
    std::vector<int64_t> columns;
    if (by_head) {
      grid.column_axis = "head";
      const int64_t heads = hook_shape(run_.engine.model(), "blocks.0." + hook.substr(9), rows)[spec.what == "pattern" ? 0 : 1];
      columns = indices_of(spec.heads.empty() ? all : spec.heads, heads, "heads of this hook in a layer", spec.where);
    } else {
      grid.column_axis = "position";
      columns = indices_of(spec.positions.empty() ? all : spec.positions, rows, "positions", spec.where);
      grid.positions = columns;
    }
    for (const int64_t column : columns) grid.columns.push_back(std::to_string(column));
    grid.values.resize(grid.rows.size() * columns.size());
    grid.recipe_cells.resize(grid.values.size());
    begin_recipe(grid);
    if (run_.recipe.interventions.empty()) grid.recipe_head += "interventions:\n";

    const bool one = grid.values.size() == 1;
    for (size_t r = 0; r < grid.rows.size(); ++r)
      for (size_t c = 0; c < columns.size(); ++c) {
        Intervention cell;
        cell.where = spec.where;
        cell.action = spec.patch ? Intervention::Action::resample : spec.action;
        if (spec.patch) cell.from = run_.prompts.run_corrupt ? Intervention::From::clean : Intervention::From::corrupt;
        const std::string name = "blocks." + std::to_string(grid.rows[r]) + "." + hook.substr(9);
        cell.of = {name + (by_head ? "[heads=" : "[positions=") + grid.columns[c] + "]"};
        if (by_head) {
          cell.positions = spec.positions;
        }
        grid.recipe_cells[grid.cell(r, c)] = to_yaml(cell);
        std::vector<ValueEdit> edits;
        run_.turn([&] {
          edits = plan_edits(run_.engine, cell, run_.prompts, run_.values);
          measure(grid, grid.cell(r, c), edits);
        });
        if (one) single = std::move(edits);
      }
    return grid;
  }

  InterveneGrid paths(std::vector<ValueEdit>& single);

  const GridRun& run_;
};

// Path patching: what it freezes, and what reaches the receivers.
class PathRuns {
 public:
  PathRuns(Engine& engine, const PathSpec& spec, const std::set<HeadPlace>& senders, const RecipePrompts& prompts,
           const Interventions& base)
      : engine_(engine), spec_(spec), prompts_(prompts), frozen_(base) {
    const int64_t last_receiver = find_receivers();
    // The order of the run: in a layer the heads, then the MLP.
    if (std::none_of(senders.begin(), senders.end(), [&](const HeadPlace& s) {
          const bool last_part = s.head < 0 || is_parallel(engine.model(), s.layer);
          return 2 * s.layer + (last_part ? 1 : 0) < last_receiver;
        }))
      throw InputError(spec.where +
                       ": no receiver comes after a sender, so nothing can reach one. Name receivers of later layers");
    const std::vector<std::string> hooks = {"blocks.*.attn.hook_z", "blocks.*.hook_mlp_out"};
    std::vector<std::string> frozen(hooks.begin(), hooks.begin() + (spec.freeze_mlps ? 2 : 1));
    for (int64_t layer = 0; layer < engine.shape().n_layers; ++layer)  // what is no head mixes positions, too
      if (!engine.model().layer(layer).has_attention()) frozen.push_back("blocks." + std::to_string(layer) + ".hook_attn_out");
    if (engine.model().record().hook("blocks.0.hook_ssm_out") != nullptr) frozen.emplace_back("blocks.*.hook_ssm_out");
    if (spec.freeze_mlps && engine.model().layer(0).per_layer_dim > 0) frozen.emplace_back("blocks.*.hook_per_layer_out");
    const Recorder own = seen(prompts.run(), frozen, frozen_);
    std::vector<ValueEdit> held;
    for (const auto& [name, value] : own.values()) held.push_back(whole(name, value));
    frozen_.append(std::move(held));
    other_.emplace(seen(prompts.other(), hooks));
  }

  /// The receivers' inputs when the sender alone is as in the other prompt. head -1: the layer's MLP.
  std::vector<ValueEdit> reaching(const HeadPlace& sender) {
    const std::string hook = "blocks." + std::to_string(sender.layer) + (sender.head < 0 ? ".hook_mlp_out" : ".attn.hook_z");
    const Recorder::Value& sent = other_->values().find(hook)->second;
    const ValueEdit send = sender.head < 0 ? whole(hook, sent) : one_head(hook, sent, sender.head);
    std::vector<std::string> hooks;
    for (const auto& [name, heads] : receivers_) hooks.push_back(name);
    const Recorder heard = seen(prompts_.run(), hooks, joined(frozen_, {send}));
    std::vector<ValueEdit> edits;
    for (const auto& [name, heads] : receivers_) {
      const Recorder::Value& value = heard.values().find(name)->second;
      if (heads.empty()) {
        edits.push_back(whole(name, value));
        continue;
      }
      for (const int64_t head : heads) edits.push_back(one_head(name, value, head));
    }
    return edits;
  }

 private:
  Recorder seen(std::span<const int32_t> ids, const std::vector<std::string>& hooks, Interventions edits = {}) {
    try {
      return trace_to_memory(engine_, ids, hooks, &edits, prompts_.memory);
    } catch (const InputError& error) {
      throw InputError(spec_.where + ": " + error.what());
    }
  }

  static ValueEdit one_head(const std::string& name, const Recorder::Value& value, int64_t head) {
    ValueEdit edit;
    edit.hook = name;
    edit.heads = {head, head + 1};
    const int64_t rows = value.shape[0], heads = value.shape[1], head_dim = value.shape[2];
    for (int64_t r = 0; r < rows; ++r) {
      const auto from = value.values.begin() + (r * heads + head) * head_dim;
      edit.values.insert(edit.values.end(), from, from + head_dim);
    }
    edit.shape = {rows, 1, head_dim};
    return edit;
  }

  // Returns the place of the last one: 2 · layer of a head, 2 · layer + 1 of an MLP, behind all of them for the logits.
  int64_t find_receivers() {
    const ModelShape& shape = engine_.shape();
    int64_t last = -1;
    for (const HeadPlace& place : heads_of(spec_.to_heads, engine_.model(), spec_.where)) {
      last = std::max(last, 2 * place.layer);
      for (const std::string& input : spec_.inputs)
        receivers_["blocks." + std::to_string(place.layer) + ".attn.hook_" + input].insert(
            input == "q" ? place.head : place.head / (shape.n_heads / engine_.model().layer(place.layer).n_kv_heads));
    }
    const std::vector<std::string> names = engine_.model().hook_names();
    for (const int64_t layer : indices_of(spec_.to_mlps, shape.n_layers, "layers", spec_.where)) {
      last = std::max(last, 2 * layer + 1);
      for (const char* hook : {".mlp.hook_pre", ".mlp.hook_pre_linear"}) {
        const std::string name = "blocks." + std::to_string(layer) + hook;
        if (std::find(names.begin(), names.end(), name) != names.end()) receivers_[name];
      }
    }
    if (spec_.to_logits) {
      last = 2 * shape.n_layers;
      receivers_["blocks." + std::to_string(shape.n_layers - 1) + ".hook_resid_post"];
    }
    return last;
  }

  Engine& engine_;
  const PathSpec& spec_;
  const RecipePrompts& prompts_;
  Interventions frozen_;  // the recipe's, then the held values
  std::optional<Recorder> other_;
  std::map<std::string, std::set<int64_t>> receivers_;  // by hook: which heads; none: all of it
};

InterveneGrid Grids::paths(std::vector<ValueEdit>& single) {
  const PathSpec& spec = *run_.recipe.paths;
  const ModelShape& shape = run_.engine.shape();
  require_equal_lengths(spec.where);
  std::set<HeadPlace> senders;
  for (const HeadPlace& place : heads_of(spec.heads, run_.engine.model(), spec.where)) senders.insert(place);
  for (const int64_t layer : indices_of(spec.mlps, shape.n_layers, "layers", spec.where)) senders.insert({layer, -1});

  InterveneGrid grid;
  grid.kind = "path";
  grid.what = "senders";
  grid.row_axis = "layer";
  grid.column_axis = "sender";
  std::set<int64_t> rows, heads;
  for (const HeadPlace& sender : senders) {
    rows.insert(sender.layer);
    if (sender.head >= 0) heads.insert(sender.head);
  }
  grid.rows.assign(rows.begin(), rows.end());
  std::vector<int64_t> columns(heads.begin(), heads.end());
  for (const int64_t head : columns) grid.columns.push_back("head " + std::to_string(head));
  if (!spec.mlps.empty()) {
    columns.push_back(-1);
    grid.columns.emplace_back("mlp");
  }
  grid.values.resize(grid.rows.size() * columns.size());
  grid.recipe_cells.resize(grid.values.size());
  begin_recipe(grid);

  std::optional<PathRuns> runs;
  run_.turn([&] { runs.emplace(run_.engine, spec, senders, run_.prompts, run_.base); });
  for (size_t r = 0; r < grid.rows.size(); ++r)
    for (size_t c = 0; c < columns.size(); ++c) {
      const HeadPlace sender{grid.rows[r], columns[c]};
      if (!senders.contains(sender)) continue;
      PathSpec cell = spec;
      cell.heads.clear();
      cell.mlps.clear();
      if (sender.head >= 0) {
        cell.heads = {std::to_string(sender.layer) + "." + std::to_string(sender.head)};
      } else {
        cell.mlps = {std::to_string(sender.layer)};
      }
      grid.recipe_cells[grid.cell(r, c)] = to_yaml(cell);
      std::vector<ValueEdit> edits;
      run_.turn([&] {
        edits = runs->reaching(sender);
        measure(grid, grid.cell(r, c), edits);
      });
      if (senders.size() == 1) single = std::move(edits);
    }
  return grid;
}

}  // namespace

InterveneGrid run_grid(const GridRun& run, std::vector<ValueEdit>& single) { return Grids(run).run(single); }

}  // namespace vitrine
