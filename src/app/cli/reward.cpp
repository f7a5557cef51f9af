// vitrine reward: what a reward model thinks of prompts with completions.
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "train/reward_lines.h"

namespace vitrine::cli {
namespace {

struct RewardArguments {
  ModelOptions model;
  std::string file = "-", template_path;
};

void print_rewards(const RewardArguments& o) {
  if (o.model.model.empty())
    throw UsageError(
        "--model is missing: name a reward model, such as the directory that `vitrine train` with reward_model wrote.");
  const bool from_input = o.file == "-";
  std::istringstream file(from_input ? std::string() : read_file(o.file));
  std::istream& from = from_input ? std::cin : file;
  std::vector<std::string> lines;
  for (std::string line; std::getline(from, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
  const auto source = o.template_path.empty() ? std::nullopt : std::optional(read_file(o.template_path, 1 << 20));
  RewardLines scored(std::shared_ptr<Engine>(new Engine(open_engine(o.model))), source);  // made in place: it does not move
  const std::vector<double> rewards = scored.rewards(lines, from_input ? "standard input" : o.file);
  if (o.model.json) return print_json({{"rewards", rewards}});
  for (const double reward : rewards) print("{}\n", OrderedJson(reward).dump());
}

Action define_reward(CLI::App& app) {
  auto o = std::make_shared<RewardArguments>();
  app.add_option("FILE", o->file,
                 "Lines of {\"prompt\", \"completion\"}, texts or messages, or of {\"messages\"}; default: standard input")
      ->type_name("");
  add_model_options(app, o->model);
  app.add_option("--template", o->template_path, "A Jinja template instead of the model's own")
      ->type_name("FILE")
      ->check(not_empty());
  o->model.rewards = true;
  return [o] { print_rewards(*o); };
}

}  // namespace

const Command reward_command = {
    "reward",
    "Print a reward model's number for each answer",
    "A reward model is a directory of transformers (…ForSequenceClassification with one label), or such a model with an adapter. "
    "Texts are tokenized as `vitrine data --chat` does it. The numbers are printed in the order of the lines, so the command can "
    "be the reward of grpo. See docs/training.md.",
    "vitrine reward answers.jsonl --model reward-run/last",
    define_reward,
    "a reward model"};

}  // namespace vitrine::cli
