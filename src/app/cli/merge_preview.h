#pragma once
// vitrine merge --preview: parents and child side by side, before anything is written.
#include <string>

#include "merge/plan.h"
#include "runtime/engine.h"

namespace vitrine::cli {

struct PreviewOptions {
  std::string prompt = "Once upon a time";  // what the models continue
  std::string text;                         // a file that they are scored on; empty: none
  int64_t top = 10, max_tokens = 40;
  int threads = 0;
  bool json = false;
};

/// Prints what each model of the plan and the merge of them make of the prompt, and how well they predict the text. Errors: as
/// merge_in_memory; InputError for a text that cannot be read.
void preview_merge(const MergePlan& plan, const PreviewOptions& options);

}  // namespace vitrine::cli
