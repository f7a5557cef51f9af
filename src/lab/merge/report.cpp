#include "merge/report.h"

#include <algorithm>
#include <cmath>

#include "base/merge_sort.h"
#include "merge/run.h"

namespace vitrine {

MergeReporter::MergeReporter(const MergePlan& plan) : plan_(plan) {
  report_.method = plan.method->name;
  report_.method_title = plan.method->title;
  report_.paper = plan.method->paper;
  for (const auto& input : plan.inputs) report_.inputs.push_back(input->name());
  if (plan.recipe.base_model && plan.method->base != MergeMethod::Base::ignored) report_.base = static_cast<int>(plan.donor);
  report_.recipe_yaml = plan.recipe.yaml;
  report_.notes = plan.notes;
}

void MergeReporter::add(size_t index, const TensorMeasure& measure) {
  constexpr double kNone = MergeTensorReport::kNone;
  const PlannedTensor& tensor = plan_.tensors[index];
  const size_t n = plan_.inputs.size();
  // Sources are some of the inputs, in an order of their own.
  const auto by_input = [&](const std::vector<double>& of_sources) {
    std::vector<double> values(n, kNone);
    for (size_t i = 0; i < of_sources.size(); ++i) values[tensor.sources[i].input] = of_sources[i];
    return values;
  };
  MergeTensorReport& made = report_.tensors.emplace_back();
  made.name = tensor.name;
  made.layer = tensor.layer;
  made.elements = tensor.elements();
  made.shape = tensor.shape;
  made.norms = by_input(measure.norms);
  std::vector<double> cosines(n * n, kNone);
  size_t at = 0;
  for (size_t i = 0; i < tensor.sources.size(); ++i)
    for (size_t j = i + 1; j < tensor.sources.size(); ++j, ++at) {
      const size_t a = tensor.sources[i].input, b = tensor.sources[j].input;
      cosines[std::min(a, b) * n + std::max(a, b)] = measure.cosines[at];
      if (std::isnan(made.angle) && !std::isnan(measure.cosines[at])) made.angle = std::acos(measure.cosines[at]);
    }
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i + 1; j < n; ++j) made.cosines.push_back(cosines[i * n + j]);
  made.sign_conflict = measure.sign_conflict;
  if (!measure.kept.empty()) made.kept = by_input(measure.kept);
  made.result_norm = measure.result_norm;
  made.result_distance = measure.result_distance;
  for (const auto& [name, value] : tensor.parameters.shared) made.parameters.emplace_back(name, std::vector<double>{value});
  for (const auto& [name, values] : tensor.parameters.per_input) made.parameters.emplace_back(name, by_input(values));
}

MergeReport MergeReporter::report() const {
  MergeReport sorted = report_;
  merge_sort(sorted.tensors, [](const MergeTensorReport& a, const MergeTensorReport& b) { return a.layer < b.layer; });
  return sorted;
}

}  // namespace vitrine
