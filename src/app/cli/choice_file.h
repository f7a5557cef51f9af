#pragma once
// Files of multiple-choice items, and what a model answers, for `vitrine eval choices` and while training.
#include <string>
#include <vector>

#include "evaluate/choice_tasks.h"

namespace vitrine::cli {

struct ChoiceFile {
  std::string path;
  ChoiceTask task = ChoiceTask::general;
  std::vector<ChoiceItem> items;
};

/// Reads JSON lines (also .gz and .zst). task: how the items are worded; empty: found by their fields. limit: of the items; 0:
/// all. Errors: FileError as read_choice_item, and for a file without an item.
ChoiceFile read_choice_file(const std::string& path, const std::string& task, int64_t limit);

}  // namespace vitrine::cli
