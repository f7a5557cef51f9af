#include "merge/plan_notes.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "base/plural.h"
#include "merge/input_vocabulary.h"

namespace vitrine {
namespace {

void for_each_settings(const MergeRecipe& recipe, const std::function<void(const ParameterSettings&)>& visit) {
  visit(recipe.parameters);
  for (const ModuleRecipe& module : recipe.modules) {
    visit(module.parameters);
    for (const OutputSlice& slice : module.slices) {
      visit(slice.parameters);
      for (const SliceSource& source : slice.sources) visit(source.parameters);
    }
  }
}

bool is_in_a_name(const std::string& filter, const MergePlan& plan) {
  return std::any_of(plan.tensors.begin(), plan.tensors.end(), [&](const PlannedTensor& tensor) {
    return tensor.name.find(filter) != std::string::npos ||
           std::any_of(tensor.sources.begin(), tensor.sources.end(),
                       [&](const PlannedTensor::Source& source) { return source.name.find(filter) != std::string::npos; });
  });
}

TokenizerInput tokenizer_of(const MergeInput& model) {
  const InputTensor* const embedding = model.find(model.embedding());
  const int64_t rows = embedding == nullptr || embedding->shape.empty() ? 0 : embedding->shape.front();
  return {model.reference(), companions_in(model.files()), rows};
}

bool same_vocabulary_files(const TokenizerInput& a, const TokenizerInput& b) {
  return std::ranges::all_of(std::array{"tokenizer.json", "tokenizer.model", "vocab.json"}, [&](const char* name) {
    const auto x = a.files.find(name), y = b.files.find(name);
    return (x == a.files.end()) == (y == b.files.end()) && (x == a.files.end() || x->second == y->second);
  });
}

// Ids with another token in each: how many, and the first. Empty: none. One that only one of them has is a row of padding.
std::string other_tokens(const Vocabulary& mine, const Vocabulary& its) {
  size_t differ = 0;
  std::string first;
  for (int32_t id = 0; id < std::min(mine.size(), its.size()); ++id) {
    if (!mine.has(id) || !its.has(id) || mine.piece(id) == its.piece(id)) continue;
    if (++differ == 1)
      first = std::to_string(id) + " is \"" + std::string(mine.piece(id)) + "\" and \"" + std::string(its.piece(id)) + "\"";
  }
  return differ == 0 ? "" : plural(differ, "id") + ": " + first;
}

}  // namespace

void note_idle_parameters(MergePlan& plan) {
  std::vector<std::string> known;
  for (const ParameterSpec& spec : plan.method->parameters) known.emplace_back(spec.name);
  std::set<std::string> unknown;
  for_each_settings(plan.recipe, [&](const ParameterSettings& settings) {
    for (const auto& [name, setting] : settings)
      if (std::find(known.begin(), known.end(), name) == known.end()) unknown.insert(name);
  });
  for (const std::string& where : plan.recipe.without_effect) plan.notes.push_back(where + " has no effect");
  for (const std::string& name : unknown) {
    const std::string meant = meant_by(name, known);
    plan.notes.push_back("the parameter \"" + name + "\" has no effect: " + plan.method->name + " does not have it" +
                         (meant.empty() ? "" : "; did you mean " + meant + "?"));
  }
}

void note_idle_filters(MergePlan& plan) {
  if (!plan.problems.empty()) return;
  std::map<std::string, bool> idle;
  for_each_settings(plan.recipe, [&](const ParameterSettings& settings) {
    for (const auto& [name, setting] : settings)
      for (const ParameterSetting::Case& one : setting.cases) {
        if (one.filter.empty()) continue;
        const auto [found, is_new] = idle.emplace(one.filter, false);
        if (is_new) found->second = !is_in_a_name(one.filter, plan);
        if (found->second)
          plan.notes.push_back(setting.where + ": no tensor has \"" + one.filter + "\" in its name; the filter has no effect");
      }
  });
}

void note_other_tokenizers(MergePlan& plan) {
  const MergeInput& donor = *plan.inputs[plan.donor];
  if (plan.recipe.tokenizer || plan.inputs.size() < 2 || donor.opened() != nullptr) return;
  std::optional<TokenizerInput> mine;
  std::optional<InputVocabulary> vocabulary;
  for (const auto& model : plan.inputs) try {
      if (model.get() == &donor || model->opened() != nullptr) continue;
      if (!mine) mine = tokenizer_of(donor);
      const TokenizerInput its = tokenizer_of(*model);
      if (its.vocab_size != mine->vocab_size || same_vocabulary_files(*mine, its)) continue;
      if (!vocabulary) vocabulary = read_input_vocabulary(*mine);
      const auto other = read_input_vocabulary(its);
      if (!vocabulary || !other) continue;
      if (const std::string differ = other_tokens(vocabulary->pieces, other->pieces); !differ.empty())
        plan.notes.push_back(donor.name() + " and " + model->name() + " have other tokens for " + differ +
                             ". Rows are merged by id; tokenizer_source aligns the tokens");
    } catch (const Error&) {  // a tokenizer that is copied need not be one that can be read
    }
}

}  // namespace vitrine
