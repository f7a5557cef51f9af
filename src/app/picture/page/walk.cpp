// The walk-through: from the string to the prediction, step by step, in words that are true for the model at hand.
#include <algorithm>

#include "model/registry.h"
#include "picture/data/document.h"
#include "picture/page/embedded.h"
#include "picture/page/page.h"
#include "picture/page/prose.h"
#include "picture/page/source.h"
#include "picture/page/walk_values.h"

namespace vitrine {
namespace {

constexpr std::string_view kSteps = "src/app/picture/page/steps/", kEnding = ".md.jinja";

// One for each file of steps/, "06-residual.md.jinja", in their order.
PictureJson steps_of(Studio& studio, const PictureJson& pictures) {
  const PictureJson values = walk_values(studio, pictures);
  const std::vector<std::string_view> definitions = definition_files(family_of(studio.engine.model()));
  std::string macros(embedded_text(std::string(kSteps) + "macros.jinja"));
  std::replace(macros.begin(), macros.end(), '\n', ' ');  // messages then count the lines of the step's own file
  PictureJson steps = PictureJson::array();
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.name.starts_with(kSteps) || !file.name.ends_with(kEnding)) continue;
    const size_t begin = file.name.find('-', kSteps.size()) + 1;
    const std::string id(file.name.substr(begin, file.name.size() - kEnding.size() - begin));
    PictureJson step = step_of(id, macros + std::string(file.text), std::string(file.name), values, definitions);
    if (!step.is_null()) steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace

DocumentRuns explain_runs(Engine& engine, const PicturePrompt& prompt, const PictureOptions& options) {
  require_family_form(engine.model(), engine.name(), "The walk-through");
  return {engine, prompt, options, {}, steps_of};
}

PictureJson explain_document(Engine& engine, const PicturePrompt& prompt, const PictureOptions& options) {
  return explain_runs(engine, prompt, options).take();
}

}  // namespace vitrine
