// vitrine units: the most active units of an MLP, and what each writes into the vocabulary.
#include "inspect/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/text_table.h"

namespace vitrine::cli {
namespace {

struct UnitsArguments {
  ModelOptions model;
  PromptOptions prompt;
  UnitsOptions units;
};

std::string written_text(const Engine& engine, const std::vector<TokenLogit>& list) {
  std::string text;
  for (const TokenLogit& one : list)
    text += fmt::format("{}{} {:+.2f}", text.empty() ? "" : "  ", shown_piece(engine, one.token), one.logit);
  return text;
}

void print_units(const Engine& engine, const Prompt& prompt, const UnitWrites& found) {
  print("{}\n",
        bold(fmt::format("the {} most active of the {} units of layer {}, after token {}, {}", found.units.size(), found.d_ff,
                         found.layer, found.position, shown_piece(engine, prompt.ids[static_cast<size_t>(found.position)]))));
  print("{}\n", dim("what each adds to the logits by itself, past the later layers: the most, and the least"));
  TextTable table{{{"unit"}, {"value"}, {"", true}}, {}};
  for (const UnitWrites::Unit& unit : found.units) {
    table.rows.push_back({fmt::format("{}", unit.unit), fmt::format("{:+.3f}", unit.value), written_text(engine, unit.promoted)});
    table.rows.push_back({"", "", written_text(engine, unit.suppressed)});
    if (&unit != &found.units.back()) table.rows.emplace_back();
  }
  print("\n");
  print_table(table);
}

void run_units(const UnitsArguments& o) {
  Engine engine = open_engine(o.model);
  const std::vector<Prompt> prompts = read_prompts(engine, o.prompt);
  if (prompts.size() != 1) throw UsageError("--tokens: units takes one sequence.");
  const UnitWrites found = unit_writes(engine, prompts[0].ids, o.units);
  if (!o.model.json) return print_units(engine, prompts[0], found);
  OrderedJson json = prompt_json(engine, prompts[0]);
  json.update(json_of(found, speller_of(engine)));
  print_json(json);
}

Action define_units(CLI::App& app) {
  auto o = std::make_shared<UnitsArguments>();
  add_prompt_options(app, o->prompt, false);
  add_count(app, "--layer", o->units.layer, 0, 1 << 20, "Layer of the MLP (default: the last but one)");
  add_count(app, "--position", o->units.position, -(int64_t{1} << 31), int64_t{1} << 31,
            "After this token of the prompt; negative: from the end (default -1, the last)");
  add_count(app, "--units", o->units.units, 1, 1 << 20, "Number of hidden units, those with the largest activation (default 8)");
  add_count(app, "--top", o->units.tokens, 1, 1 << 20, "Tokens to show that a unit raises most and lowers most (default 5)");
  add_model_options(app, o->model);
  return [o] { run_units(*o); };
}

}  // namespace

const Command units_command = {
    "units", "Show the most active hidden units of an MLP and the logits that each changes",
    "For each hidden unit: its activation, and the tokens whose logits it directly raises and lowers most. This is its "
    "column of W_out times its activation, through the norms between it and the output with the scales of this run, and "
    "through the unembedding. docs/attribution.md has the formula.",
    "vitrine units \"Once upon a time there was a king\"\n"
    "vitrine units \"Once upon a time there was a king\" --layer 6 --position 2 --units 3 --json",
    define_units};

}  // namespace vitrine::cli
