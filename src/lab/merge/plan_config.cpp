#include "merge/plan_config.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/error.h"
#include "base/merge_sort.h"
#include "model/load.h"

namespace vitrine {
namespace {

// Which stack the configuration counts, if the recipe cuts it into slices: the one that has as many layers as it says, or the
// only one. Whole models keep their configuration: files may hold more stacks, and layers that it does not count.
std::vector<ConfigLayer> counted_layers(MergePlan& plan, const ConfigFindings& found) {
  if (found.sliced.empty()) return {};
  const auto counted = config_layers(plan.config);
  for (const auto& [stack, layers] : found.sliced)
    if (counted && (found.stacks == 1 || plan.inputs[plan.donor]->layers(stack) == *counted)) return layers;
  plan.notes.push_back("the configuration of " + plan.inputs[plan.donor]->name() + " does not count the layers of " +
                       found.sliced.begin()->first + "; config.json keeps the number that it says");
  return {};
}

// A layer keeps its window wherever it is put, also where the family tells layers with a window by their place.
void keep_windows(MergePlan& plan, const std::vector<ConfigLayer>& layers) {
  std::map<const Json*, std::optional<std::vector<int64_t>>> by_config;
  std::vector<int64_t> wanted;
  for (const ConfigLayer& layer : layers) {
    const auto known = by_config.find(layer.config);
    const auto& windows = known != by_config.end() ? known->second : by_config[layer.config] = config_windows(*layer.config);
    if (!windows || static_cast<size_t>(layer.layer) >= windows->size()) return;
    wanted.push_back((*windows)[static_cast<size_t>(layer.layer)]);
  }
  const auto says = [&] { return config_windows(plan.config); };
  if (const auto now = says(); !now || *now == wanted) return;
  Json before = plan.config;
  set_config_windows(plan.config, wanted);
  if (const auto now = says(); now && *now == wanted) return;
  plan.config = std::move(before);
  plan.notes.push_back("the configuration cannot say that the layers keep their windows; each has that of its new place");
}

// A stack of layers may be none that the family's configuration can express, as where the last layers share keys.
void note_unless_it_opens(MergePlan& plan) {
  if (plan.inputs[plan.donor]->opened() == nullptr) return;
  ModelFiles files;
  files.config = plan.config;
  files.config_path = "config.json";
  try {
    model_from_config(files);
  } catch (const InputError& error) {
    plan.notes.push_back("vitrine cannot run the result: " + std::string(error.what()));
  }
}

}  // namespace

bool is_integer(DType dtype) { return dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u8; }

bool is_head(const MergePlan& plan, const std::string& name) {
  return std::any_of(plan.inputs.begin(), plan.inputs.end(),
                     [&](const auto& model) { return !name.empty() && model->head() == name; });
}

void plan_config(MergePlan& plan, const ConfigFindings& found) {
  plan.config = plan.inputs[plan.donor]->config();
  if (!plan.config.is_object()) return;
  set_config_unpacked(plan.config);
  std::set<DType> types;
  for (const PlannedTensor& tensor : plan.tensors)
    if (!is_integer(tensor.dtype)) types.insert(tensor.dtype);
  if (const auto named = plan.recipe.out_dtype ? plan.recipe.out_dtype : plan.recipe.dtype) {
    set_config_dtype(plan.config, *named);
  } else if (types.size() == 1) {
    set_config_dtype(plan.config, *types.begin());
  }
  const std::vector<ConfigLayer> layers = counted_layers(plan, found);
  if (!layers.empty()) {
    set_config_layers(plan.config, layers);
    keep_windows(plan, layers);
    plan.stacked = true;
    note_unless_it_opens(plan);
  }
  if (plan.tokens) set_config_vocab_size(plan.config, plan.tokens->rows);
  if (found.vocab_size) set_config_vocab_size(plan.config, *found.vocab_size);
  const bool has_head =
      std::any_of(plan.tensors.begin(), plan.tensors.end(), [&](const PlannedTensor& t) { return is_head(plan, t.name); });
  // It was made of tied and of separate ones; some files of tied models hold the output matrix all the same.
  const bool differ = std::any_of(plan.inputs.begin(), plan.inputs.end(), [&](const auto& model) {
    return config_tied(model->config()).value_or(false) != config_tied(plan.config).value_or(false);
  });
  if (has_head && (found.untied || differ)) set_config_tied(plan.config, false);
}

void plan_shards(MergePlan& plan) {
  const auto key = [](const PlannedTensor& tensor) {
    std::string last;
    for (const PlannedTensor::Source& source : tensor.sources) last = std::max(last, source.name);
    return last;
  };
  merge_sort(plan.tensors, [&](const PlannedTensor& a, const PlannedTensor& b) { return key(a) < key(b); });
  std::set<std::string> seen;
  for (const PlannedTensor& tensor : plan.tensors)
    if (!seen.insert(tensor.name).second)
      throw UsageError(plan.recipe.path + ": two modules of the recipe make the tensor " + tensor.name);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const uint64_t bytes = row_bytes(plan.tensors[i].dtype, static_cast<size_t>(plan.tensors[i].elements()));
    if (plan.shards.empty() || (plan.options.shard_bytes > 0 && plan.shards.back().bytes > 0 &&
                                plan.shards.back().bytes + bytes > static_cast<uint64_t>(plan.options.shard_bytes)))
      plan.shards.emplace_back();
    plan.shards.back().tensors.push_back(i);
    plan.shards.back().bytes += bytes;
  }
  const size_t n = plan.shards.size();
  for (size_t i = 0; i < n; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, n);
    plan.shards[i].file = n == 1 ? "model.safetensors" : name;
  }
}

}  // namespace vitrine
