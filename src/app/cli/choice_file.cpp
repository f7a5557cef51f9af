#include "cli/choice_file.h"

#include <optional>

#include "base/error.h"
#include "cli/eval_input.h"

namespace vitrine::cli {

ChoiceFile read_choice_file(const std::string& path, const std::string& task, int64_t limit) {
  ChoiceFile file;
  file.path = path;
  std::optional<ChoiceTask> known;
  if (!task.empty()) known = choice_task_of(task);
  each_json_line(path, [&](const Json& item, const std::string& where) {
    if (!known) known = find_choice_task(item, where);
    file.items.push_back(read_choice_item(*known, item, where));
    return limit == 0 || static_cast<int64_t>(file.items.size()) < limit;
  });
  if (file.items.empty()) throw FileError(path, "holds no item. Expected one JSON object a line");
  file.task = *known;
  return file;
}

}  // namespace vitrine::cli
