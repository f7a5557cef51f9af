#include "cli/train_tasks.h"

#include <filesystem>

#include "base/error.h"
#include "evaluate/choices.h"

namespace vitrine::cli {

TrainTasks::TrainTasks(const TrainConfig& config) {
  for (const std::string& path : config.tasks) {
    const std::string file = std::filesystem::path(path).filename().string(), name = file.substr(0, file.find('.'));
    for (const Task& before : tasks_)
      if (before.name == name)
        throw InputError(config.path + ": tasks: " + path + " and " + before.file.path + " are both called \"" + name +
                         "\", which names their metrics. Rename one of the files");
    tasks_.push_back({name, read_choice_file(path, "", config.tasks_limit)});
  }
}

std::vector<std::pair<std::string, double>> TrainTasks::measure(Engine& engine) const {
  std::vector<std::pair<std::string, double>> measured;
  std::vector<ChoicesResult> results;
  for (const Task& task : tasks_) {
    const ChoicesResult& result = results.emplace_back(answer_choices(engine, task.file.items));
    measured.emplace_back("accuracy_" + task.name, result.accuracy.value);
    if (norms_by_length(task.file.task)) measured.emplace_back("accuracy_norm_" + task.name, result.norm.value);
  }
  if (results.size() > 1) measured.emplace_back("centered_mean", centered_mean(results));
  return measured;
}

}  // namespace vitrine::cli
