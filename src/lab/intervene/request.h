#pragma once
// Recipes and changes as requests in JSON bring them (POST /v1/patch, the field `edits`, a live page).
#include <cstdint>
#include <memory>
#include <vector>

#include "base/json.h"
#include "intervene/intervene.h"
#include "intervene/recipe.h"
#include "runtime/engine.h"

namespace vitrine {

/// The keys of a recipe that a request may have.
inline constexpr const char* kRecipeKeys[] = {"prompt", "corrupt", "run", "metric", "interventions", "patch", "ablate", "path"};

/// The recipe among a request's keys; the others are not looked at. Prompts may be lists of ids. Errors: as recipe_of, about
/// "recipe".
Recipe recipe_of_request(const nlohmann::ordered_json& request);
/// One whose interventions are the list `edits`, for a run of `ids`. Errors: as recipe_of, about "edits".
Recipe recipe_of_edits(const nlohmann::ordered_json& edits, const std::vector<int32_t>& ids);

/// The interventions of a recipe, in their order, for a run of `ids`. Errors: as plan_edits.
std::unique_ptr<Interventions> planned(Engine& engine, const Recipe& recipe, const std::vector<int32_t>& ids);

}  // namespace vitrine
