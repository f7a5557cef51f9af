#pragma once
// The numbers that an intervention puts at its hooks: from other prompts, a mean over them, a file, or the recipe itself.
#include <vector>

#include "hooks/hooks.h"
#include "intervene/intervene.h"
#include "intervene/plan.h"
#include "intervene/recipe.h"
#include "runtime/engine.h"

namespace vitrine {

/// An intervention, the hooks that it touches, and where the values come from.
struct EditPlan {
  Engine& engine;
  const Intervention& intervention;
  const RecipePrompts& prompts;
  SourceValues& values;
  std::vector<Capture> captures;
};

ValueEdit edit_of(const Capture& capture, ValueEdit::Kind kind);

/// One edit for each capture. Errors: as plan_edits.
std::vector<ValueEdit> resample_edits(const EditPlan& plan);
std::vector<ValueEdit> mean_edits(const EditPlan& plan);
std::vector<ValueEdit> given_edits(const EditPlan& plan);

}  // namespace vitrine
