// vitrine generate: text that continues a prompt.
#include "generate/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/plural.h"
#include "base/stopwatch.h"
#include "cli/commands.h"
#include "cli/generate_options.h"
#include "cli/lora_option.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/sae_flags.h"
#include "cli/session.h"
#include "hooks/listening.h"
#include "intervene/plan.h"
#include "intervene/recipe.h"
#include "model/abilities.h"

namespace vitrine::cli {
namespace {

struct GenerateArguments {
  ModelOptions model;
  PromptOptions prompt;
  GenerateFlags generate;
  SaeFlags sae;
  std::string edits;
};

OrderedJson timings_json(const Timings& t) {
  return {{"load_ms", t.load_ms},
          {"prompt_tokens", t.prompt_tokens},
          {"prompt_ms", t.prompt_ms},
          {"decode_tokens", t.decode_tokens},
          {"decode_ms", t.decode_ms},
          {"drafted_tokens", t.drafted_tokens},
          {"accepted_tokens", t.accepted_tokens}};
}

void log_timings(const Timings& t) {
  const auto rate = [](int64_t tokens, double ms) { return ms > 0 ? static_cast<double>(tokens) * 1000 / ms : 0.0; };
  log("opened in {:.0f} ms; prompt: {} in {:.0f} ms ({:.0f}/s); decode: {} in {:.0f} ms ({:.1f}/s)", t.load_ms,
      plural(t.prompt_tokens, "token"), t.prompt_ms, rate(t.prompt_tokens, t.prompt_ms), plural(t.decode_tokens, "token"),
      t.decode_ms, rate(t.decode_tokens, t.decode_ms));
  log_drafts(t);
}

/// Text of ids behind the prompt, or null where the model has no tokenizer or the prompt was given as ids.
OrderedJson text_json(const Engine& engine, const Prompt& prompt, std::span<const int32_t> ids) {
  return prompt.from_text ? OrderedJson(engine.text_behind(prompt.ids, ids)) : OrderedJson(nullptr);
}

OrderedJson one_by_one(Engine& engine, GenerateOptions options, const Prompt& prompt, const GenerateArguments& o,
                       double load_ms) {
  const bool stream = !o.model.json && prompt.from_text;
  if (stream && terminal().is_terminal) write_out(dim(prompt.text));
  Generation made = generate(engine, prompt.ids, options, [&](std::string_view text) {
    if (!stream) return;
    write_out(text);
    finish_output();
  });
  made.timings.load_ms = load_ms;
  if (stream) print("\n");
  if (!o.model.json) {
    if (!prompt.from_text) write_out(fmt::format("{}\n", fmt::join(made.tokens, ",")));
    log_timings(made.timings);
    return nullptr;
  }
  return {{"text", prompt.from_text ? OrderedJson(made.text) : OrderedJson(nullptr)},
          {"tokens", made.tokens},
          {"logprobs", made.logprobs},
          {"finish_reason", made.finish_reason},
          {"sampling", sampling_recipe(options.sampling)},
          {"timings", timings_json(made.timings)}};
}

OrderedJson by_beams(Engine& engine, const Prompt& prompt, const GenerateArguments& o, double load_ms) {
  const BeamOptions options = o.generate.beam_options(engine);
  Timings timings;
  const std::vector<Hypothesis> found = generate_beams(engine, prompt.ids, options, &timings);
  timings.load_ms = load_ms;
  if (!o.model.json) {
    for (const Hypothesis& h : found) {
      const auto ids = without_end(h, options.eos);
      print("{}  {}\n", dim(fmt::format("{:9.4f}", h.score)),
            prompt.from_text ? visible(engine.text_behind(prompt.ids, ids)) : fmt::format("{}", fmt::join(ids, ",")));
    }
    log_timings(timings);
    return nullptr;
  }
  const auto best = without_end(found[0], options.eos);
  std::vector<int32_t> whole = prompt.ids;
  whole.insert(whole.end(), found[0].tokens.begin(), found[0].tokens.end());
  const std::vector<float> all = engine.token_logprobs(whole);  // of whole[1..]
  OrderedJson hypotheses = OrderedJson::array();
  for (const Hypothesis& h : found)
    hypotheses.push_back(
        {{"tokens", h.tokens}, {"text", text_json(engine, prompt, without_end(h, options.eos))}, {"score", h.score}});
  return {{"text", text_json(engine, prompt, best)},
          {"tokens", found[0].tokens},
          {"logprobs", std::vector<float>(all.end() - static_cast<std::ptrdiff_t>(found[0].tokens.size()), all.end())},
          {"finish_reason", best.size() < found[0].tokens.size() ? "stop" : "length"},
          {"hypotheses", hypotheses},
          {"timings", timings_json(timings)}};
}

// The interventions of a recipe. Errors: as read_recipe; UsageError for one without any.
Recipe read_edits(const std::string& path) {
  Recipe recipe = read_recipe(path);
  if (recipe.interventions.empty())
    throw UsageError("--edits " + path + " has no interventions; those are what is done while text is written.");
  return recipe;
}

void run_generate(const GenerateArguments& o) {
  o.generate.check();
  o.sae.check(o.generate.beams, !o.edits.empty());
  std::optional<Recipe> recipe;
  if (!o.edits.empty()) {
    if (o.generate.beams > 1) throw UsageError("--edits changes one sequence; --beams runs several.");
    recipe = read_edits(o.edits);
  }
  ModelOptions model = o.model;
  if (recipe) {
    std::vector<SaeFile> saes = recipe->saes;
    if (!o.sae.directory.empty()) saes.push_back({o.sae.directory, o.sae.hook});
    model.through = through_saes(saes);
  }
  const Stopwatch opening;
  Engine engine = open_engine(model);
  if (o.generate.beams > 1)
    require_causal(engine.model(), engine.name(), "Generating a text with beams");
  else
    require_next_token(engine.model(), engine.name(), "Generating a text");
  const std::unique_ptr<Listener> splice = o.sae.open(engine);
  const std::unique_ptr<Listening> listening = splice ? std::make_unique<Listening>(engine.context(), *splice) : nullptr;
  GenerateOptions options = o.generate.options(engine);
  options.drafter = o.generate.open_drafter(engine);
  options.constraint = o.generate.open_constraint(engine);
  const double load_ms = opening.ms();
  const std::vector<Prompt> prompts = read_prompts(engine, o.prompt);
  OrderedJson documents = OrderedJson::array();
  for (const Prompt& prompt : prompts) {
    const std::unique_ptr<Interventions> edits = recipe ? planned(engine, *recipe, prompt.ids) : nullptr;
    const std::optional<Listening> changed =
        edits ? std::optional<Listening>(std::in_place, engine.context(), *edits) : std::nullopt;
    documents.push_back(o.generate.beams > 1 ? by_beams(engine, prompt, o, load_ms)
                                             : one_by_one(engine, options, prompt, o, load_ms));
  }
  if (!o.model.json) return;
  print_json(prompts.size() == 1 ? documents[0] : OrderedJson{{"sequences", documents}});
}

Action define_generate(CLI::App& app) {
  auto o = std::make_shared<GenerateArguments>();
  add_prompt_options(app, o->prompt, false);
  add_count(app, "--max-tokens,-n", o->generate.max_tokens, 0, int64_t{1} << 40, "Maximum new tokens (default 128)");
  add_sampling_flags(app, o->generate);
  add_beam_flags(app, o->generate);
  add_stop_flags(app, o->generate);
  add_draft_flags(app, o->generate);
  add_grammar_flags(app, o->generate);
  add_sae_flags(app, o->sae);
  app.add_option(
         "--edits", o->edits,
         "Changes to the model during generation: the interventions of this recipe of `vitrine intervene`; the rest of the "
         "recipe is ignored, and positions are those of the prompt")
      ->type_name("RECIPE")
      ->check(not_empty());
  add_model_options(app, o->model);
  add_lora_option(app, o->model);
  add_decoding_cache_types(app, o->model);
  add_load(app, o->model);
  return [o] { run_generate(*o); };
}

}  // namespace

const Command generate_command = {
    "generate", "Continue a prompt",
    "Decoding is greedy unless a sampling flag is given; --beams uses beam search. The text is streamed. The sampling "
    "rules are those of Hugging Face's generate(), and their order can be set. --lookup and --draft make decoding faster "
    "without changing the tokens (speculative decoding): docs/speculative-decoding.md explains when.",
    "vitrine generate \"Once upon a time\" --max-tokens 40 --temperature 0.8 --seed 7\n"
    "vitrine generate \"The old king\" --max-tokens 12 --beams 4 --return 2",
    define_generate};

}  // namespace vitrine::cli
