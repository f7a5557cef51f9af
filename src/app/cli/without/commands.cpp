// A program of the engine alone (VITRINE_ENGINE_ONLY): the commands that need the rest take anything, and say what they need.
#include "cli/commands.h"

#include <CLI/CLI.hpp>

#include "base/error.h"

namespace vitrine::cli {
namespace {

Action not_built(CLI::App& app) {
  app.allow_extras();
  return [] { throw InputError("this program was built with VITRINE_ENGINE_ONLY. Build it with -D VITRINE_ENGINE_ONLY=OFF"); };
}

}  // namespace

Action define_attribute(CLI::App& app) { return not_built(app); }
Action define_circuits(CLI::App& app) { return not_built(app); }
Action define_collect(CLI::App& app) { return not_built(app); }
Action define_compare(CLI::App& app) { return not_built(app); }
Action define_convert(CLI::App& app) { return not_built(app); }
Action define_curves(CLI::App& app) { return not_built(app); }
Action define_data(CLI::App& app) { return not_built(app); }
Action define_distill(CLI::App& app) { return not_built(app); }
Action define_eval_choices(CLI::App& app) { return not_built(app); }
Action define_eval_compare(CLI::App& app) { return not_built(app); }
Action define_eval_perplexity(CLI::App& app) { return not_built(app); }
Action define_explain(CLI::App& app) { return not_built(app); }
Action define_extract_lora(CLI::App& app) { return not_built(app); }
Action define_features(CLI::App& app) { return not_built(app); }
Action define_generate(CLI::App& app) { return not_built(app); }
Action define_graph(CLI::App& app) { return not_built(app); }
Action define_imatrix(CLI::App& app) { return not_built(app); }
Action define_info(CLI::App& app) { return not_built(app); }
Action define_intervene(CLI::App& app) { return not_built(app); }
Action define_merge(CLI::App& app) { return not_built(app); }
Action define_picture(CLI::App& app) { return not_built(app); }
Action define_pull(CLI::App& app) { return not_built(app); }
Action define_sae_train(CLI::App& app) { return not_built(app); }
Action define_serve(CLI::App& app) { return not_built(app); }
Action define_trace(CLI::App& app) { return not_built(app); }
Action define_train(CLI::App& app) { return not_built(app); }
Action define_units(CLI::App& app) { return not_built(app); }
Action define_verify(CLI::App& app) { return not_built(app); }
Action define_warp(CLI::App& app) { return not_built(app); }

}  // namespace vitrine::cli
