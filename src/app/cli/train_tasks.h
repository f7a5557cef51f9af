#pragma once
// The multiple-choice tasks of a training configuration, answered now and then by the model that learns.
#include <string>
#include <utility>
#include <vector>

#include "cli/choice_file.h"
#include "runtime/engine.h"
#include "train/config.h"

namespace vitrine::cli {

class TrainTasks {
 public:
  /// Reads the files of config.tasks. Errors: as read_choice_file; InputError for two files of one name.
  explicit TrainTasks(const TrainConfig& config);

  /// For each file NAME.jsonl "accuracy_NAME", and "accuracy_norm_NAME" where the task is normed by length; of several files
  /// "centered_mean". Errors: as answer_choices.
  std::vector<std::pair<std::string, double>> measure(Engine& engine) const;

 private:
  struct Task {
    std::string name;
    ChoiceFile file;
  };
  std::vector<Task> tasks_;
};

}  // namespace vitrine::cli
