// vitrine attribute: which tokens of a prompt a prediction comes from, by gradients.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/text_table.h"
#include "inspect/attribution.h"
#include "intervene/plan.h"
#include "model/abilities.h"

namespace vitrine::cli {
namespace {

constexpr int kWidestBar = 30;

struct AttributeArguments {
  ModelOptions model;
  PromptOptions prompt;
  AttributionOptions attribution;
  std::string token, against, baseline = "mean";
};

/// A token as typed: an id, a text that is one token, or a piece. Nothing for "".
std::optional<int32_t> token_of(const Engine& engine, const std::string& typed, const char* flag) {
  if (typed.empty()) return {};
  if (typed.find_first_not_of("0123456789") == std::string::npos) return parse_ids(typed, flag).front();
  return id_of(engine, {.text = typed, .where = flag});
}

void print_attribution(const Engine& engine, const Prompt& prompt, const Attribution& found, const AttributeArguments& o) {
  const std::vector<double> main = found.integrated.value_or(found.gradient_input);
  double largest = 0, saliency = 0;
  for (const double x : main) largest = std::max(largest, std::abs(x));
  for (const double x : found.saliency) saliency += x;
  TextTable table{{{"token", true}, {"saliency"}, {"gradient x input"}}, {}};
  if (found.integrated) table.columns.push_back({"integrated"});
  table.columns.push_back({"", true});
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    auto& row = table.rows.emplace_back();
    row = {shown_piece(engine, prompt.ids[i]), percent(saliency > 0 ? found.saliency[i] / saliency : 0),
           fmt::format("{:+.4f}", found.gradient_input[i])};
    if (found.integrated) row.push_back(fmt::format("{:+.4f}", (*found.integrated)[i]));
    row.push_back((main[i] < 0 ? "-" : "+") + bar(largest > 0 ? std::abs(main[i]) / largest : 0, kWidestBar));
  }
  print_table(table);
  std::string what = "log-probability of " + shown_piece(engine, found.token);
  if (o.attribution.against) what += " less that of " + shown_piece(engine, *o.attribution.against);
  print("{}: {:.4f}\n", what, found.value);
  if (found.integrated)
    print("at the baseline ({}): {:.4f}; the integrated parts sum to the difference but for {:.1e}\n", o.baseline,
          *found.baseline_value, *found.gap);
}

void run_attribute(AttributeArguments o) {
  Engine engine = open_engine(o.model);
  require_causal(engine.model(), engine.name(), "What a next token comes from");
  const std::vector<Prompt> prompts = read_prompts(engine, o.prompt);
  if (prompts.size() != 1) throw UsageError("--tokens: attribute takes one sequence.");
  o.attribution.token = token_of(engine, o.token, "--token");
  o.attribution.against = token_of(engine, o.against, "--against");
  o.attribution.baseline = o.baseline == "zero" ? Baseline::zero : Baseline::mean;
  const Attribution found = attribute(engine, prompts[0].ids, o.attribution);
  if (o.model.json) {
    OrderedJson json = prompt_json(engine, prompts[0]);
    json.update(json_of(found, speller_of(engine, prompts[0].from_text)));
    print_json(json);
  } else {
    print_attribution(engine, prompts[0], found, o);
  }
}

Action define_attribute(CLI::App& app) {
  auto o = std::make_shared<AttributeArguments>();
  add_prompt_options(app, o->prompt, false);
  app.add_option(
         "--token", o->token,
         "The token whose log-probability is explained: an id, a text that is one token, or a piece; default: the most likely")
      ->type_name("TOKEN")
      ->check(not_empty());
  app.add_option("--against", o->against, "Explain why --token and not this one: the difference of their log-probabilities")
      ->type_name("TOKEN")
      ->check(not_empty());
  add_choice(app, "--baseline", o->baseline, "mean|zero",
             "Where integrated gradients start: at the vocabulary's mean embedding, or at zero (default mean)");
  add_count(app, "--steps", o->attribution.steps, 0, 4096, "Points of the integral; 0: no integrated gradients (default 64)");
  add_model_options(app, o->model);
  return [o] { run_attribute(*o); };
}

}  // namespace

const Command attribute_command = {
    "attribute", "Show which tokens of a prompt a prediction depends on",
    "Uses gradients of a token's log-probability with respect to the embeddings: saliency (the gradient's length, as a "
    "share of the sum), gradient times input, and integrated gradients, which sum to the difference between the prompt "
    "and the baseline. docs/attribution.md explains them.",
    "vitrine attribute \"Once upon a time there was a little girl who\"\n"
    "vitrine attribute \"The king and the queen had a\" --token \" son\" --against \" daughter\" --steps 16",
    define_attribute};

}  // namespace vitrine::cli
