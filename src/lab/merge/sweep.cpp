#include "merge/sweep.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/nearest.h"
#include "merge/distance.h"
#include "merge/run.h"

namespace vitrine {
namespace {

constexpr size_t kMostSwept = 1000;

const ParameterSpec& swept_parameter(const MergeMethod& method, const std::string& name) {
  std::vector<std::string> names;
  std::string all;
  for (const ParameterSpec& spec : method.parameters) {
    if (spec.name == name) return spec;
    names.emplace_back(spec.name);
    all += (all.empty() ? "" : ", ") + names.back();
  }
  const std::string meant = meant_by(name, names);
  throw UsageError(std::string(method.name) + " has no parameter \"" + name + "\"" +
                   (!meant.empty() ? "; did you mean " + meant + "?"
                    : all.empty()  ? "; it has none"
                                   : "; it has " + all));
}

void check_kind(const ParameterSpec& spec, double value) {
  const std::string is = std::string(spec.name) + " cannot be " + Json(value).dump();
  if (spec.kind == ParameterSpec::Kind::flag && value != 0 && value != 1) throw UsageError(is + "; it is a flag, 0 or 1");
  if (spec.kind == ParameterSpec::Kind::whole && value != std::floor(value)) throw UsageError(is + "; expected a whole number");
}

}  // namespace

SweptParameter parse_sweep(std::string_view text, std::string_view flag) {
  const auto fail = [&](const std::string& why) {
    throw UsageError(std::string(flag) + " is \"" + std::string(text) + "\"; " + why);
  };
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) fail("expected a parameter and its values, such as eta=0,0.25,0.5,0.75,1");
  SweptParameter swept;
  swept.name = text.substr(0, equals);
  std::string_view rest = text.substr(equals + 1);
  while (true) {
    const std::string_view word = rest.substr(0, rest.find(','));
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || error != std::errc{} || end != word.data() + word.size() || !std::isfinite(value))
      fail("\"" + std::string(word) + "\" is no number; expected values with commas between them");
    swept.values.push_back(value);
    if (swept.values.size() > kMostSwept) fail("expected " + std::to_string(kMostSwept) + " values at most");
    if (word.size() == rest.size()) return swept;
    rest.remove_prefix(word.size() + 1);
  }
}

void override_parameter(MergeRecipe& recipe, const std::string& name, double value) {
  const ParameterSpec& spec = swept_parameter(find_merge_method(recipe.method, recipe.where), name);
  check_kind(spec, value);
  for (ModuleRecipe& module : recipe.modules) {
    module.parameters.erase(name);
    for (OutputSlice& slice : module.slices) {
      slice.parameters.erase(name);
      for (SliceSource& source : slice.sources) source.parameters.erase(name);
    }
  }
  const ParameterScalar scalar = spec.kind == ParameterSpec::Kind::flag ? ParameterScalar(value != 0) : ParameterScalar(value);
  recipe.parameters[name] = {{{"", {scalar}}}, "the value of " + name};
}

void override_parameter(MergePlan& plan, const std::string& name, double value) {
  check_kind(swept_parameter(*plan.method, name), value);
  for (PlannedTensor& tensor : plan.tensors) {
    if (const auto found = tensor.parameters.shared.find(name); found != tensor.parameters.shared.end()) found->second = value;
    if (const auto found = tensor.parameters.per_input.find(name); found != tensor.parameters.per_input.end())
      for (double& each : found->second)
        if (!std::isnan(each)) each = value;  // a base model has none
  }
}

MergeSweep sweep_merge(MergeRecipe recipe, const MergeOptions& options, const SweptParameter& swept, std::string_view text,
                       int threads, const std::function<void(const SweepPoint&)>& watch) {
  for (const double value : swept.values) override_parameter(recipe, swept.name, value);
  MergePlan plan = plan_merge(recipe, options);
  MergeSweep result;
  result.parameter = swept.name;
  result.distance_from = plan.inputs[plan.donor]->name();
  for (const double value : swept.values) {
    override_parameter(plan, swept.name, value);
    const std::unique_ptr<Engine> engine = merge_in_memory(plan, {.threads = threads});
    SweepPoint point{value, text_loss(*engine, text), weight_distance(engine->opened().checkpoint, *plan.inputs[plan.donor])};
    if (watch) watch(point);
    result.points.push_back(point);
  }
  return result;
}

}  // namespace vitrine
