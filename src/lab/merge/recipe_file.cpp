#include "merge/recipe_file.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/huggingface.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

// A recipe whose models by name of another document are that document's directory.
void rename_models(MergeRecipe& recipe, const std::map<std::string, std::string>& directories) {
  for_each_model(recipe, [&](ModelReference& model) {
    if (const auto found = directories.find(model.path); found != directories.end()) model.path = found->second;
  });
}

// The models that must be there: those that are merged, and the one that gives the tokenizer.
std::vector<ModelReference> models_needed(const MergeRecipe& recipe) {
  std::vector<ModelReference> models = recipe.models();
  if (recipe.tokenizer && recipe.tokenizer->source == TokenizerRecipe::Source::model)
    if (std::find(models.begin(), models.end(), recipe.tokenizer->model) == models.end())
      models.push_back(recipe.tokenizer->model);
  return models;
}

// The documents in an order in which each comes after those that it names.
std::vector<size_t> in_order(const std::vector<MergeRecipe>& recipes) {
  std::vector<size_t> order;
  std::vector<int> state(recipes.size(), 0);  // 1: being visited, 2: done
  const std::function<void(size_t)> visit = [&](size_t i) {
    if (state[i] == 2) return;
    if (state[i] == 1)
      throw UsageError(recipes[i].path + ": the merge \"" + recipes[i].name + "\" needs its own result; break the circle");
    state[i] = 1;
    for (const ModelReference& model : models_needed(recipes[i]))
      for (size_t j = 0; j < recipes.size(); ++j)
        if (!recipes[j].name.empty() && recipes[j].name == model.path) visit(j);
    state[i] = 2;
    order.push_back(i);
  };
  for (size_t i = 0; i < recipes.size(); ++i) visit(i);
  return order;
}

std::map<std::string, std::string> directories_of(const std::vector<MergeRecipe>& recipes, const std::string& parts) {
  std::map<std::string, std::string> directories;
  const MergeRecipe* wanted = nullptr;
  for (const MergeRecipe& recipe : recipes) {
    if (recipe.name.empty()) {
      if (wanted != nullptr)
        throw UsageError(recipe.where + ": a second merge without \"name\"; name all but the one whose result is wanted");
      wanted = &recipe;
      continue;
    }
    if (recipe.name.find('/') != std::string::npos || recipe.name.starts_with('.'))
      throw UsageError(recipe.where + ": a merge is called \"" + recipe.name +
                       "\"; expected a plain name, which a directory can have");
    if (!directories.emplace(recipe.name, parts + "/" + recipe.name).second)
      throw UsageError(recipe.where + ": a second merge is called \"" + recipe.name + "\"; give each its own name");
  }
  if (wanted == nullptr)
    throw UsageError(recipes.front().path + ": every merge has a \"name\"; leave it out of the one whose result is wanted");
  return directories;
}

// Whether the directory holds what the step makes: a directory has its name when it is whole.
bool holds_result(const MergeStep& step, bool says_recipe) {
  std::error_code error;
  if (!fs::exists(step.directory + "/config.json", error)) return false;
  const auto made_at = [&](const std::string& directory) { return fs::last_write_time(directory + "/config.json", error); };
  for (const std::string& needed : step.needs)
    if (fs::exists(needed + "/config.json", error) && made_at(needed) > made_at(step.directory)) return false;
  const std::string recipe = step.directory + "/mergekit_config.yml";
  return fs::exists(recipe, error) ? read_file(recipe) == step.recipe.yaml : !says_recipe;
}

}  // namespace

std::vector<MergeStep> merge_steps(std::vector<MergeRecipe> recipes, const std::string& out, const std::string& parts) {
  if (recipes.size() == 1) return {{std::move(recipes.front()), out, {}, true}};
  const std::map<std::string, std::string> directories = directories_of(recipes, parts);
  std::vector<MergeStep> steps;
  for (const size_t i : in_order(recipes)) {
    MergeStep& step = steps.emplace_back(MergeStep{recipes[i], out, {}, recipes[i].name.empty()});
    if (!step.is_wanted) step.directory = directories.at(recipes[i].name);
    for (const ModelReference& model : models_needed(step.recipe))
      if (const auto found = directories.find(model.path); found != directories.end()) step.needs.push_back(found->second);
    rename_models(step.recipe, directories);
  }
  return steps;
}

bool is_made(const MergeStep& step) { return !step.is_wanted && holds_result(step, false); }

bool is_whole(const std::vector<MergeStep>& steps) {
  return std::all_of(steps.begin(), steps.end(), [](const MergeStep& step) { return holds_result(step, step.is_wanted); });
}

void check_merges(const std::vector<MergeStep>& steps, const MergeOptions& options, bool lazy) {
  std::vector<std::string> pending;  // results that are to be made
  const auto is_pending = [&](const std::string& directory) {
    return std::find(pending.begin(), pending.end(), directory) != pending.end();
  };
  for (const MergeStep& step : steps) {
    const bool waits = std::any_of(step.needs.begin(), step.needs.end(), is_pending);
    if (lazy && !waits && is_made(step)) continue;
    if (!waits) {
      refuse_problems(plan_merge(step.recipe, options));
    } else {
      static_cast<void>(find_merge_method(step.recipe.method, step.recipe.where));
      for (const ModelReference& model : models_needed(step.recipe)) {
        if (!is_pending(model.path)) static_cast<void>(locate_model(model.path));
        if (!model.adapter.empty()) static_cast<void>(locate_model(model.adapter));
      }
    }
    pending.push_back(step.directory);
  }
}

std::string first_missing(const MergeStep& step) {
  std::error_code error;
  for (const std::string& directory : step.needs)
    if (!fs::exists(directory + "/config.json", error)) return directory;
  return "";
}

int64_t parse_shard_size(const std::string& text, const std::string& what) {
  int64_t factor = 1;
  std::string digits = text;
  if (!digits.empty()) switch (digits.back()) {
      case 'k':
      case 'K': factor = 1000; break;
      case 'm':
      case 'M': factor = 1'000'000; break;
      case 'b':
      case 'B':
      case 'g':
      case 'G': factor = 1'000'000'000; break;
      default: break;
    }
  if (factor != 1) digits.pop_back();
  const bool fits = !digits.empty() && digits.size() <= (factor == 1 ? 18 : 9);
  if (!fits || digits.find_first_not_of("0123456789") != std::string::npos)
    throw UsageError(what + " is " + text + "; expected bytes, such as 5B, 500M or 100000");
  return std::stoll(digits) * factor;
}

}  // namespace vitrine
