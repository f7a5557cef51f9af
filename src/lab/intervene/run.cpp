#include "intervene/run.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "hooks/listening.h"
#include "hooks/trace.h"
#include "ops/listener_chain.h"

namespace vitrine {
namespace {

// Logits of some rows, [rows, vocab_size], of a residual stream that was computed with the same edits.
Tensor checked_logits(Engine& engine, const Step& step, const Tensor& x, Interventions& edits, std::span<const int64_t> rows) {
  Context& ctx = engine.context();
  const Listening listening(ctx, edits);
  const Tensor z = logits(ctx, x, engine.model().head(), rows);
  if (first_not_finite(z) < 0) return z;
  FirstNotFinite watch;
  ListenerChain chain({&edits, &watch});
  const Listening watching(ctx, chain);
  logits(ctx, engine.model().residual(ctx, step), engine.model().head(), rows);
  throw RunError(
      "NaN or infinity appeared first in " + (watch.name.empty() ? std::string("the logits") : watch.name) +
      (edits.edits().empty()
           ? "; do the weights hold NaN? `vitrine verify` shows more"
           : " of the edited run. An intervention there or on an earlier hook may be its cause: numbers that grow beyond "
             "what f32 holds, or a division by a zero that it puts in. Change it, or edit fewer layers or norms"));
}

Tensor residual_of(Engine& engine, const Step& step, Interventions& edits) {
  const Listening listening(engine.context(), edits);
  return engine.model().residual(engine.context(), step);
}

// How many rows of logits are made at once: who edits the logits is shown the whole table each time.
size_t rows_at_once(const Interventions& edits, size_t rows) {
  return edits.wants("hook_logits") ? std::max<size_t>(1, rows) : static_cast<size_t>(kLogitRows);
}

// Calls read(place among `rows`, logits [vocab_size]) for rows of one sequence, run with `edits`.
using ReadRow = std::function<void(size_t, std::span<const float>)>;
void run_rows(Engine& engine, std::span<const int32_t> ids, Interventions& edits, std::span<const int64_t> rows,
              const ReadRow& read) {
  const auto frame = engine.context().frame();
  const Step step = Step::of(ids);
  const Tensor x = residual_of(engine, step, edits);
  const size_t each = rows_at_once(edits, rows.size());
  for (size_t first = 0; first < rows.size(); first += each) {
    const auto scratch = engine.context().frame();
    const Tensor z = checked_logits(engine, step, x, edits, rows.subspan(first, std::min(each, rows.size() - first)));
    for (int64_t i = 0; i < z.rows(); ++i)
      read(first + static_cast<size_t>(i), {z.row<float>(i), static_cast<size_t>(z.row_size())});
  }
}

std::vector<std::vector<float>> logits_of(Engine& engine, std::span<const int32_t> ids, Interventions& edits,
                                          std::span<const int64_t> rows) {
  std::vector<std::vector<float>> result(rows.size());
  run_rows(engine, ids, edits, rows, [&](size_t i, std::span<const float> z) { result[i].assign(z.begin(), z.end()); });
  return result;
}

// What a run is measured by.
class Metric {
 public:
  Metric(Engine& engine, const Recipe& recipe, const RecipePrompts& prompts)
      : engine_(engine), kind_(recipe.metric.kind), labels_(prompts.clean) {
    for (const TokenSpec& token : recipe.metric.tokens) tokens_.push_back(id_of(engine, token));
    const auto rows = static_cast<int64_t>(prompts.run().size());
    position_ = position_of(recipe.metric.position, rows, recipe.metric.where);
    if (kind_ == Kind::none) return;
    if (kind_ == Kind::loss && labels_.size() < 2)
      throw InputError(recipe.metric.where + ": the loss scores token t + 1 after token t, which takes two tokens or more");
    if (!prompts.corrupt.empty() && prompts.corrupt.size() != prompts.clean.size() && kind_ == Kind::loss)
      throw InputError(recipe.metric.where + ": the loss is that of the clean prompt's tokens (" +
                       std::to_string(prompts.clean.size()) + "), and the corrupt prompt has " +
                       std::to_string(prompts.corrupt.size()) + "; both must have as many");
    if (kind_ == Kind::kl) {
      const int64_t at = position_of(recipe.metric.position, static_cast<int64_t>(labels_.size()), recipe.metric.where);
      Interventions none;
      clean_ = logits_of(engine, labels_, none, std::span(&at, 1))[0];
    }
    relative_ = recipe.metric.position;
    where_ = recipe.metric.where;
  }

  int64_t position() const { return position_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }

  // most likely: if there is one, receives the `top` most likely tokens at the metric's position.
  double of(std::span<const int32_t> ids, Interventions edits = {}, int64_t top = 0,
            std::vector<TokenLogprob>* likeliest = nullptr) const {
    const auto length = static_cast<int64_t>(ids.size());
    const int64_t at = kind_ == Kind::loss ? position_ : position_of(relative_, length, where_);
    const auto kept = static_cast<size_t>(std::min(top, engine_.shape().vocab_size));
    if (kind_ == Kind::loss) {
      if (likeliest != nullptr) *likeliest = top_logprobs(logits_of(engine_, ids, edits, std::span(&at, 1))[0], kept);
      std::vector<int64_t> rows(ids.size() - 1);
      std::iota(rows.begin(), rows.end(), 0);
      double sum = 0;
      run_rows(engine_, ids, edits, rows, [&](size_t i, std::span<const float> z) {
        sum += log_sum_exp(z) - static_cast<double>(z[static_cast<size_t>(labels_[i + 1])]);
      });
      return sum / static_cast<double>(rows.size());
    }
    const std::vector<float> z = logits_of(engine_, ids, edits, std::span(&at, 1))[0];
    if (likeliest != nullptr) *likeliest = top_logprobs(z, kept);
    const auto logit = [&](size_t i) { return static_cast<double>(z[static_cast<size_t>(tokens_[i])]); };
    if (kind_ == Kind::logit_difference) return logit(0) - logit(1);
    if (kind_ == Kind::logprob) return logit(0) - log_sum_exp(z);
    return kl_divergence(clean_, z);
  }

 private:
  using Kind = MetricSpec::Kind;
  Engine& engine_;
  Kind kind_;
  std::vector<int32_t> labels_, tokens_;
  std::vector<float> clean_;
  int64_t position_ = 0, relative_ = -1;
  std::string where_;
};

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

using Turns = std::function<void(const std::function<void()>&)>;

class Grids {
 public:
  Grids(Engine& engine, const Recipe& recipe, const RecipePrompts& prompts, const Metric& metric, const Interventions& base,
        SourceValues& values, int64_t cell_top, const Turns& turn)
      : engine_(engine),
        recipe_(recipe),
        prompts_(prompts),
        metric_(metric),
        base_(base),
        values_(values),
        cell_top_(cell_top),
        turn_(turn) {}

  // `single` receives the edits that make the cell, if the grid has one cell only.
  InterveneGrid run(std::vector<ValueEdit>& single) {
    if (recipe_.paths) return paths(single);
    return places(single);
  }

 private:
  const std::vector<int32_t>& ids() const { return prompts_.run(); }

  void require_equal_lengths(const std::string& where) const {
    if (prompts_.clean.size() == prompts_.corrupt.size()) return;
    throw InputError((where.empty() ? "" : where + ": ") + "the prompt has " + std::to_string(prompts_.clean.size()) +
                     " tokens and the corrupt prompt " + std::to_string(prompts_.corrupt.size()) +
                     "; patching goes position by position, so both must have as many. `vitrine tokenize` shows the tokens");
  }

  void begin_recipe(InterveneGrid& grid) const {
    Recipe head = recipe_;
    head.grid.reset();
    head.paths.reset();
    grid.recipe_head = to_yaml(head);
  }

  void measure(InterveneGrid& grid, size_t cell, const std::vector<ValueEdit>& edits) const {
    if (cell_top_ > 0) grid.likeliest.resize(grid.values.size());
    grid.values[cell] = metric_.of(ids(), joined(base_, edits), cell_top_, cell_top_ > 0 ? &grid.likeliest[cell] : nullptr);
  }

  InterveneGrid places(std::vector<ValueEdit>& single) {
    const GridSpec& spec = *recipe_.grid;
    const ModelShape& shape = engine_.shape();
    const auto rows = static_cast<int64_t>(ids().size());
    if (spec.patch) require_equal_lengths(spec.where);
    const std::string hook = hook_alias(spec.what).value_or(spec.what);
    const bool by_head = hook_shape(engine_.model(), "blocks.0." + hook.substr(9), 1).size() == 3;
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
      const int64_t heads = hook_shape(engine_.model(), "blocks.0." + hook.substr(9), rows)[spec.what == "pattern" ? 0 : 1];
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
    if (recipe_.interventions.empty()) grid.recipe_head += "interventions:\n";

    const bool one = grid.values.size() == 1;
    for (size_t r = 0; r < grid.rows.size(); ++r)
      for (size_t c = 0; c < columns.size(); ++c) {
        Intervention cell;
        cell.where = spec.where;
        cell.action = spec.patch ? Intervention::Action::resample : spec.action;
        if (spec.patch) cell.from = prompts_.run_corrupt ? Intervention::From::clean : Intervention::From::corrupt;
        const std::string name = "blocks." + std::to_string(grid.rows[r]) + "." + hook.substr(9);
        cell.of = {name + (by_head ? "[heads=" : "[positions=") + grid.columns[c] + "]"};
        if (by_head) {
          cell.positions = spec.positions;
        }
        grid.recipe_cells[grid.cell(r, c)] = to_yaml(cell);
        std::vector<ValueEdit> edits;
        turn_([&] {
          edits = plan_edits(engine_, cell, prompts_, values_);
          measure(grid, grid.cell(r, c), edits);
        });
        if (one) single = std::move(edits);
      }
    return grid;
  }

  InterveneGrid paths(std::vector<ValueEdit>& single);

  Engine& engine_;
  const Recipe& recipe_;
  const RecipePrompts& prompts_;
  const Metric& metric_;
  const Interventions& base_;
  SourceValues& values_;
  int64_t cell_top_;
  const Turns& turn_;
};

// Path patching: what it freezes, and what reaches the receivers.
class PathRuns {
 public:
  PathRuns(Engine& engine, const PathSpec& spec, const std::set<HeadPlace>& senders, const RecipePrompts& prompts,
           const Interventions& base)
      : engine_(engine), spec_(spec), prompts_(prompts), frozen_(base) {
    const int64_t last_receiver = find_receivers();
    // The order of the run: in a layer the heads, then the MLP.
    if (std::none_of(senders.begin(), senders.end(),
                     [&](const HeadPlace& s) { return 2 * s.layer + (s.head < 0 ? 1 : 0) < last_receiver; }))
      throw InputError(spec.where +
                       ": no receiver comes after a sender, so nothing can reach one. Name receivers of later layers");
    const std::vector<std::string> hooks = {"blocks.*.attn.hook_z", "blocks.*.hook_mlp_out"};
    std::vector<std::string> frozen(hooks.begin(), hooks.begin() + (spec.freeze_mlps ? 2 : 1));
    for (int64_t layer = 0; layer < engine.shape().n_layers; ++layer)  // what is no head mixes positions, too
      if (!engine.model().layer(layer).has_attention()) frozen.push_back("blocks." + std::to_string(layer) + ".hook_attn_out");
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
  const PathSpec& spec = *recipe_.paths;
  const ModelShape& shape = engine_.shape();
  require_equal_lengths(spec.where);
  std::set<HeadPlace> senders;
  for (const HeadPlace& place : heads_of(spec.heads, engine_.model(), spec.where)) senders.insert(place);
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
  turn_([&] { runs.emplace(engine_, spec, senders, prompts_, base_); });
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
      turn_([&] {
        edits = runs->reaching(sender);
        measure(grid, grid.cell(r, c), edits);
      });
      if (senders.size() == 1) single = std::move(edits);
    }
  return grid;
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

std::optional<double> InterveneResult::normalized(double value) const {
  if (!metric_clean || !metric_corrupt) return {};
  const double range = *metric_clean - *metric_corrupt;
  if (!(std::abs(range) > 1e-12)) return {};
  return (value - *metric_corrupt) / range;
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
  result.metric_tokens = metric->tokens();

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
    result.grid = Grids(engine, recipe, prompts, *metric, edits, values, options.cell_top, turn).run(single);
    edits.append(std::move(single));
  }

  std::vector<int64_t> rows = {result.position};
  if (options.all_positions) {
    rows.resize(ids.size());
    std::iota(rows.begin(), rows.end(), 0);
  }
  turn([&] { compare(engine, ids, edits, rows, options.top, result); });
  if (recipe.metric.kind == MetricSpec::Kind::none) return result;
  turn([&] {
    result.metric_clean = metric->of(prompts.clean);
    if (recipe.corrupt) result.metric_corrupt = metric->of(prompts.corrupt);
    result.metric_after = metric->of(ids, edits);
  });
  result.metric_before = prompts.run_corrupt ? result.metric_corrupt : result.metric_clean;
  return result;
}

}  // namespace vitrine
