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

constexpr Command absent(const char* name) { return {name, "Not in this program, the engine alone", "", "", not_built}; }

}  // namespace

const Command attribute_command = absent("attribute"), circuits_command = absent("circuits"), collect_command = absent("collect"),
              compare_command = absent("compare"), convert_command = absent("convert"), curves_command = absent("curves"),
              data_command = absent("data"), distill_command = absent("distill"), eval_choices_command = absent("eval choices"),
              eval_compare_command = absent("eval compare"), eval_perplexity_command = absent("eval perplexity"),
              book_command = absent("book"), explain_command = absent("explain"), extract_lora_command = absent("extract-lora"),
              features_command = absent("features"), generate_command = absent("generate"), graph_command = absent("graph"),
              imatrix_command = absent("imatrix"), info_command = absent("info"), intervene_command = absent("intervene"),
              lens_train_command = absent("lens train"), merge_command = absent("merge"), picture_command = absent("picture"),
              pull_command = absent("pull"), reward_command = absent("reward"), sae_train_command = absent("sae train"),
              serve_command = absent("serve"), trace_command = absent("trace"), train_command = absent("train"),
              units_command = absent("units"), verify_command = absent("verify"), warp_command = absent("warp");

}  // namespace vitrine::cli
