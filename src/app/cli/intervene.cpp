// vitrine intervene: ablation, patching and steering from a recipe.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "cli/heat_map.h"
#include "cli/lora_option.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/sae_flags.h"
#include "cli/session.h"
#include "cli/study.h"
#include "intervene/run.h"
#include "io/atomic_file.h"
#include "picture/data/study.h"

namespace vitrine::cli {
namespace {

struct InterveneArguments {
  ModelOptions model;
  std::vector<SaeFile> saes;
  InterveneOptions run;
  int64_t memory_mib = 0;
  std::string recipe, out, page;
};

std::string shown(const Engine& engine, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : " ") + shown_piece(engine, id);
  return text;
}

/// "3 ▁king": what stands at a position.
std::string position_label(const Engine& engine, const InterveneResult& r, int64_t position) {
  return fmt::format("{} {}", position, shown_piece(engine, r.prompts.run()[static_cast<size_t>(position)]));
}

// Where a token stands in a list of the most likely, or its end.
auto place_of(const std::vector<TokenLogprob>& list, int32_t token) {
  return std::find_if(list.begin(), list.end(), [&](const TokenLogprob& one) { return one.token == token; });
}

// Who wins, before anything else is read.
std::string winner_text(const Engine& engine, const std::vector<TokenLogprob>& before, const std::vector<TokenLogprob>& after) {
  const std::string was = shown_piece(engine, before[0].token), now = shown_piece(engine, after[0].token);
  if (before[0].token == after[0].token)
    return fmt::format("{} stays the most likely: {} before, {} after", bold(was), percent(before[0].prob()),
                       percent(after[0].prob()));
  const auto earlier = place_of(before, after[0].token), later = place_of(after, before[0].token);
  return fmt::format("{} ({}) takes the place of {} ({})", bold(now),
                     (earlier == before.end() ? "" : percent(earlier->prob()) + " → ") + percent(after[0].prob()), bold(was),
                     percent(before[0].prob()) + (later == after.end() ? "" : " → " + percent(later->prob())));
}

void print_predictions(const Engine& engine, const InterveneResult& r) {
  for (size_t at = 0; at < r.before.size(); ++at) {
    const auto& before = r.before[at].top;
    const auto& after = r.after[at].top;
    int widest = 6;
    for (const TokenLogprob& entry : before) widest = std::max(widest, width_of(shown_piece(engine, entry.token)));
    for (const TokenLogprob& entry : after) widest = std::max(widest, width_of(shown_piece(engine, entry.token)));
    print("\n{}\n", bold(fmt::format("after {}", position_label(engine, r, r.before[at].position))));
    if (!before.empty() && !after.empty()) print("{}\n", winner_text(engine, before, after));
    print("{}\n", dim(fmt::format("      {}   {} {}   was", pad_right("before", widest + 10), pad_right("after", widest + 10),
                                  pad_left("change", 8))));
    for (size_t i = 0; i < before.size(); ++i) {
      const auto column = [&](const TokenLogprob& entry) {
        return pad_right(shown_piece(engine, entry.token), widest) + pad_left(percent(entry.prob()), 10);
      };
      const auto was = place_of(before, after[i].token);
      // In points of a per cent: against the same token before.
      const double points = was == before.end() ? 0 : 100 * (after[i].prob() - was->prob());
      const std::string change = was == before.end() ? "" : fmt::format("{:+.1f}", points);
      const auto colored_by = [&](const std::string& text) {
        return std::abs(points) < 0.05 ? text : points > 0 ? risen(text) : fallen(text);
      };
      // What was not among the most likely had less than the last of them.
      const bool rose = was == before.end() && after[i].logprob > before.back().logprob;
      print("{:>4}  {}   {} {}   {}\n", i + 1, column(before[i]), rose ? risen(column(after[i])) : colored_by(column(after[i])),
            colored_by(pad_left(change, 8)),
            was != before.end() ? dim(fmt::format("{}", was - before.begin() + 1))
            : rose              ? risen("new")
                                : "new");
    }
    print("KL(before ‖ after) {:.4g} nats\n", r.kl[at]);
  }
}

std::string metric_text(const Engine& engine, const InterveneResult& r) {
  const auto token = [&](size_t i) { return shown_piece(engine, r.metric->tokens[i]); };
  switch (r.recipe.metric.kind) {
    case MetricSpec::Kind::logit_difference: return fmt::format("logit({}) - logit({})", token(0), token(1));
    case MetricSpec::Kind::logprob: return fmt::format("log p({})", token(0));
    case MetricSpec::Kind::kl: return "KL(clean ‖ run)";
    case MetricSpec::Kind::loss: return "loss over the clean prompt's tokens";
    default: return "";
  }
}

/// A grid of several cells with no edit beside them: its run is as before.
bool only_a_grid(const InterveneResult& r) { return r.interventions.empty() && r.grid && r.grid->values.size() != 1; }

void print_metric(const Engine& engine, const InterveneResult& r) {
  if (!r.metric) return;
  std::string line = metric_text(engine, r) + ":";
  if (!only_a_grid(r)) line += fmt::format(" before {:.4g}, after {:.4g};", *r.metric->before, *r.metric->after);
  if (r.metric->corrupt) {
    line += fmt::format(" clean {:.4g}, corrupt {:.4g};", *r.metric->clean, *r.metric->corrupt);
    const auto share = r.metric->normalized(*r.metric->after);
    if (share && !only_a_grid(r)) line += fmt::format(" {:.3f} of the way from corrupt to clean;", *share);
  } else if (only_a_grid(r)) {
    line += fmt::format(" {:.4g};", *r.metric->before);
  }
  line.pop_back();
  print("\n{}\n", line);
}

void print_grid(const Engine& engine, const InterveneResult& r) {
  const InterveneGrid& grid = *r.grid;
  const bool shares = r.metric->corrupt && r.metric->normalized(*r.metric->clean).has_value();
  HeatMap map;
  map.corner = grid.row_axis + " \\ " + grid.column_axis;
  for (const int64_t row : grid.rows) map.rows.push_back(fmt::format("{}", row));
  map.columns = grid.columns;
  for (size_t c = 0; c < grid.positions.size(); ++c) map.columns[c] = position_label(engine, r, grid.positions[c]);
  map.middle = shares ? 0 : *r.metric->before;
  map.reach = shares ? 1 : 1e-12;
  for (const std::optional<double>& value : grid.values) {
    map.values.push_back(value && shares ? r.metric->normalized(*value) : value);
    if (!shares && value) map.reach = std::max(map.reach, std::abs(*value - map.middle));
  }
  print("\n{} {}\n", bold(grid.kind == "path" ? "path patching" : grid.kind + " " + grid.what),
        dim(shares ? "0 as the corrupt run, 1 as the clean one: " + metric_text(engine, r)
                   : metric_text(engine, r) + fmt::format(", {:.4g} before", *r.metric->before)));
  write_out(heat_map_text(map, terminal().columns, terminal().colors));
  size_t best = grid.values.size();
  for (size_t i = 0; i < grid.values.size(); ++i)
    if (grid.values[i] && (best == grid.values.size() ||
                           std::abs(*grid.values[i] - *r.metric->before) > std::abs(*grid.values[best] - *r.metric->before)))
      best = i;
  if (best < grid.values.size() && grid.values.size() > 1) {
    print("\n{}\n", dim("This recipe makes the cell that changes most:"));
    write_out(recipe_text(grid, best / grid.columns.size(), best % grid.columns.size()));
  }
}

void print_result(const Engine& engine, const InterveneResult& r) {
  print("{} {}\n", dim(r.recipe.run_corrupt ? "clean  " : "prompt "), shown(engine, r.prompts.clean));
  if (r.recipe.corrupt) print("{} {}\n", dim("corrupt"), shown(engine, r.prompts.corrupt));
  if (r.recipe.corrupt) print("{} {}\n", dim("edited "), r.recipe.run_corrupt ? "the corrupt prompt" : "the clean prompt");
  for (const InterveneResult::Done& done : r.interventions) {
    write_out(done.recipe);
    std::string hooks;
    for (size_t i = 0; i < std::min<size_t>(done.hooks.size(), 4); ++i) hooks += (i > 0 ? ", " : "") + done.hooks[i];
    if (done.hooks.size() > 4) hooks += fmt::format(" and {} more", done.hooks.size() - 4);
    print("    {}\n", dim("# " + hooks));
  }
  if (!only_a_grid(r)) print_predictions(engine, r);
  print_metric(engine, r);
  if (r.grid) print_grid(engine, r);
}

constexpr int64_t kCellTop = 6;  // most likely tokens that the page shows of every cell

// What a grid puts in or takes out, in words for a title.
std::string words_of(const std::string& what) {
  if (what.starts_with("resid")) return "the residual stream";
  if (what == "attn_out") return "what attention adds";
  if (what == "mlp_out") return "what the MLP adds";
  if (what == "z") return "what a head collects";
  if (what == "pattern") return "a head's attention";
  return what;
}

void write_patch_page(Engine& engine, const InterveneArguments& o, const InterveneResult& r) {
  const InterveneGrid& grid = *r.grid;
  StudyHead head;
  head.kicker = grid.kind == "ablate" ? "Ablation" : grid.kind == "path" ? "Path patching" : "Activation patching";
  head.title = grid.kind == "ablate" ? fmt::format("What the answer loses without {} at one place", words_of(grid.what))
               : grid.kind == "path" ? "Which head or MLP acts directly"
                                     : fmt::format("Where {} holds the answer", words_of(grid.what));
  head.lines.push_back(fmt::format("Each cell is a run of {} with one value changed, measured by `{}`.",
                                   short_name(engine.name()), metric_text(engine, r)));
  head.command = "vitrine intervene " + shell_word(o.recipe) + model_words(o.model) + " --page " + shell_word(o.page);
  const auto clean = engine.predict(r.prompts.clean, kCellTop, true);
  const auto at = r.prompts.run_corrupt ? r.prompts.clean.size() - r.prompts.corrupt.size() + static_cast<size_t>(r.position)
                                        : static_cast<size_t>(r.position);
  write_study_page(o.page, study_document(engine, head, {patch_section(r, clean.at(std::min(at, clean.size() - 1)).top)}));
}

void run_intervene(InterveneArguments o) {
  Recipe recipe = read_recipe(o.recipe);
  // A recipe's adapter is that of the recipe's model. The recipes of cells name what ran.
  if (o.model.adapter.empty() && o.model.model.empty()) o.model.adapter = recipe.adapter;
  if (o.model.model.empty()) o.model.model = recipe.model;
  recipe.model = o.model.model;
  recipe.adapter = o.model.adapter;
  if (!o.out.empty()) check_writable("--out", o.out);
  if (!o.page.empty()) {
    if (!recipe.grid && !recipe.paths)
      throw UsageError("--page shows a grid, and " + o.recipe + " has none; give it patch, ablate or path.");
    check_writable("--page", o.page);
    o.run.cell_top = kCellTop;
  }
  ModelOptions model = o.model;
  o.saes.insert(o.saes.end(), recipe.saes.begin(), recipe.saes.end());
  model.through = through_saes(o.saes);
  Engine engine = open_engine(model);
  std::vector<std::filesystem::path> inputs = {o.recipe};
  for (const Intervention& intervention : recipe.interventions) inputs.emplace_back(intervention.vector.file);
  check_output(engine, o.out, inputs);
  check_output(engine, o.page, std::move(inputs));
  o.run.memory = static_cast<size_t>(o.memory_mib) << 20;
  const InterveneResult result = intervene(engine, recipe, o.run);
  if (!o.page.empty()) write_patch_page(engine, o, result);
  if (o.model.json || !o.out.empty()) {
    const OrderedJson document = to_json(result, engine);
    if (!o.out.empty()) write_file_atomically(o.out, document.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
    if (o.model.json) return print_json(document);
  }
  print_result(engine, result);
}

Action define_intervene(CLI::App& app) {
  auto o = std::make_shared<InterveneArguments>();
  app.add_option("RECIPE", o->recipe, "What to do, in YAML (docs/intervene.md)")->type_name("FILE")->required();
  add_count(app, "--top", o->run.top, 1, 1 << 20, "Tokens to show before and after (default 10)");
  app.add_flag("--all-positions", o->run.all_positions, "Show predictions and KL after every token, not only after the metric's");
  app.add_option("--out,-o", o->out, "Also write the JSON document to this file (replaced if it exists)")
      ->type_name("FILE")
      ->check(not_empty());
  add_page(app, o->page);
  add_count(app, "--memory", o->memory_mib, 1, int64_t{1} << 30,
            "Maximum MiB for values kept for patching; a larger run is refused before it starts (default: the free memory)");
  add_sae_option(app, o->saes);
  add_model_options(app, o->model);
  add_lora_option(app, o->model);
  return [o] { run_intervene(*o); };
}

}  // namespace

const Command intervene_command = {
    "intervene", "Ablate, patch or steer parts of a model, from a recipe",
    "The recipe contains a prompt, the changes to heads, layers, norms or hooks, and a metric. docs/intervene.md explains "
    "every key. Shows predictions before and after, their KL divergence and the metric, and a grid for patching. Without "
    "--model the model of the recipe is used.",
    "vitrine intervene examples/ablate-heads.yaml\nvitrine intervene examples/patch-king-queen.yaml", define_intervene};

}  // namespace vitrine::cli
