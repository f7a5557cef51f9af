#pragma once
// vitrine bench --plan: how a step's work falls to threads, without running it.
#include <cstdint>
#include <string>

#include "cli/session.h"

namespace vitrine::cli {

struct PlanSizes {
  int64_t prompt = 0, depth = 0;  // prompt: 0 is 512, or what the context holds
  std::string weights;            // a type's name; empty: as the files have them
};

/// Prints one prefill step and one decode step of the model, or of its configuration alone, on options.threads threads.
/// Errors: UsageError for sizes beyond the model's context; those of open_headers.
void print_thread_plan(const ModelOptions& options, const PlanSizes& sizes);

}  // namespace vitrine::cli
