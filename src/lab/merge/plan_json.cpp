#include "merge/plan_json.h"

#include "merge/run.h"

namespace vitrine {
namespace {

using Document = nlohmann::ordered_json;

Document tensor_json(const MergePlan& plan, const PlannedTensor& tensor) {
  const auto model = [&](const PlannedTensor::Source& source) { return plan.inputs[source.input]->name(); };
  Document sources = Document::array(), parameters = Document::object();
  for (const PlannedTensor::Source& source : tensor.sources)
    sources.push_back({{"model", model(source)}, {"tensor", source.name}});
  for (const auto& [name, value] : tensor.parameters.shared) parameters[name] = value;
  for (const auto& [name, values] : tensor.parameters.per_input) parameters[name] = values;  // null for the base
  return {{"name", tensor.name},
          {"shape", tensor.shape},
          {"dtype", name_of(tensor.dtype)},
          {"layer", tensor.layer < 0 ? Document(nullptr) : Document(tensor.layer)},
          {"base", tensor.base < 0 ? Document(nullptr) : Document(model(tensor.sources[static_cast<size_t>(tensor.base)]))},
          {"copied", tensor.copied},
          {"sources", sources},
          {"parameters", parameters}};
}

}  // namespace

nlohmann::ordered_json plan_json(const MergePlan& plan, int threads) {
  Document tensors = Document::array(), shards = Document::array(), inputs = Document::array();
  for (const auto& input : plan.inputs) inputs.push_back(input->name());
  for (const PlannedTensor& tensor : plan.tensors) tensors.push_back(tensor_json(plan, tensor));
  for (const PlannedShard& shard : plan.shards)
    shards.push_back({{"file", shard.file}, {"tensors", shard.tensors.size()}, {"bytes", shard.bytes}});
  return {{"method", plan.method->name},
          {"inputs", inputs},
          {"tensors", tensors},
          {"shards", shards},
          {"problems", plan.problems},
          {"notes", plan.notes},
          {"bytes_read", plan.bytes_read()},
          {"bytes_written", plan.bytes_written()},
          {"memory_bytes", merge_memory(plan, threads)}};
}

}  // namespace vitrine
