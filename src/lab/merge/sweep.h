#pragma once
// A merge that is built in memory for several values of one parameter, and measured.
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "merge/evaluate.h"
#include "merge/plan.h"

namespace vitrine {

struct SweptParameter {
  std::string name;
  std::vector<double> values;
};
/// Reads "eta=0,0.25,0.5". Errors: UsageError beginning with `flag`.
SweptParameter parse_sweep(std::string_view text, std::string_view flag);

/// The parameter takes one value everywhere, whatever the recipe says: for every tensor and, where it is one of each model, for
/// every model. Errors: UsageError for a parameter that the method lacks, or for a value of another kind.
void override_parameter(MergeRecipe& recipe, const std::string& name, double value);
/// The same for a plan.
void override_parameter(MergePlan& plan, const std::string& name, double value);

struct SweepPoint {
  double value = 0;
  TextLoss text;
  std::optional<double> distance;  // from the base model or the first; nothing where their tensors differ
};
struct MergeSweep {
  std::string parameter, distance_from;
  std::vector<SweepPoint> points;
};

/// Merges in memory once for each value. threads: 0: all cores. watch: after each. Errors: as plan_merge, merge_in_memory,
/// text_loss.
MergeSweep sweep_merge(MergeRecipe recipe, const MergeOptions& options, const SweptParameter& swept, std::string_view text,
                       int threads, const std::function<void(const SweepPoint&)>& watch = {});

}  // namespace vitrine
