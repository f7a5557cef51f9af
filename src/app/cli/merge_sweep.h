#pragma once
// vitrine merge --sweep: one merge for several values of a parameter, in memory.
#include <CLI/CLI.hpp>
#include <string>

#include "merge/plan.h"

namespace vitrine::cli {

struct SweepArguments {
  std::string sweep, svg;
  bool wanted() const { return !sweep.empty(); }
};

/// --sweep and --svg.
void add_sweep_options(CLI::App& app, SweepArguments& sweep);

/// text_file: what is scored. Errors: UsageError where it is missing, and for the sweep itself.
void run_sweep(const MergeRecipe& recipe, const MergeOptions& options, const SweepArguments& sweep, const std::string& text_file,
               bool json, int threads);

}  // namespace vitrine::cli
