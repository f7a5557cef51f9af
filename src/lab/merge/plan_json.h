#pragma once
// A plan as a document: what `vitrine merge --dry-run --json` prints and vitrine.merge_plan() returns.
#include <nlohmann/json.hpp>

#include "merge/plan.h"

namespace vitrine {

/// threads: of the run, for the memory that it takes.
nlohmann::ordered_json plan_json(const MergePlan& plan, int threads);

}  // namespace vitrine
