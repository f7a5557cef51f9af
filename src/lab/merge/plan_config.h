#pragma once
// The last part of a merge's plan: the configuration of the result, and the order and files of its tensors.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "merge/plan.h"
#include "model/config_file.h"

namespace vitrine {

/// What the tensors tell about the configuration.
struct ConfigFindings {
  std::map<std::string, std::vector<ConfigLayer>> sliced;  // of each stack that the recipe cuts into slices
  size_t stacks = 0;
  std::optional<int64_t> vocab_size;
  bool untied = false;
};

/// Whole numbers are copied, never merged.
bool is_integer(DType dtype);
/// Whether an input calls its output head so.
bool is_head(const MergePlan& plan, const std::string& name);

/// Sets the configuration, and notes what it cannot express.
void plan_config(MergePlan& plan, const ConfigFindings& found);
/// Orders the tensors as mergekit does, by the last of the sources' names, and spreads them over files.
/// Errors: UsageError for two tensors of one name.
void plan_shards(MergePlan& plan);

}  // namespace vitrine
