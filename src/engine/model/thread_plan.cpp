#include "model/thread_plan.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "model/model.h"

namespace vitrine {

TaskCost ThreadPlan::total() const {
  TaskCost sum;
  for (const PlannedRegion& region : regions) sum = sum + region.total;
  return sum;
}

double ThreadPlan::imbalance(int64_t TaskCost::* number) const {
  int64_t largest = 0;
  for (const PlannedRegion& region : regions) largest += region.largest.*number;
  const int64_t all = total().*number;
  return all == 0 ? 1 : static_cast<double>(largest) * threads / static_cast<double>(all);
}

namespace {

// The last words of the weights' names by our own: "blocks.3.mlp.W_gate" is W_gate.
class Words {
 public:
  explicit Words(const Model& model) {
    for (const TensorLine& line : model.tensors())
      if (line.weight != nullptr) of_.emplace(line.weight, line.ours.substr(line.ours.rfind('.') + 1));
  }
  std::vector<std::string> of(const std::vector<const Weight*>& weights) const {
    std::vector<std::string> words;
    for (const Weight* w : weights)
      if (const auto word = of_.find(w); word != of_.end() && std::find(words.begin(), words.end(), word->second) == words.end())
        words.push_back(word->second);
    return words;
  }

 private:
  std::map<const Weight*, std::string> of_;
};

}  // namespace

ThreadPlan plan_threads(const Model& model, StepSize size) {
  size.regions = true;
  const Words words(model);
  ThreadPlan plan;
  plan.threads = size.threads;
  plan.by_thread.resize(static_cast<size_t>(size.threads));
  for (const OpRecord& op : record_step(model, size).ops) {
    ++plan.ops;
    const int64_t rows = op.inputs.empty() ? 0 : op.inputs[0].shape[0];
    const std::vector<std::string> of_op = words.of(op.weights);
    for (const RegionRecord& region : op.regions) {
      if (!region.enters_pool(size.threads)) {
        ++plan.serial_sections;
        plan.serial = plan.serial + region.total();
        continue;
      }
      PlannedRegion& planned =
          plan.regions.emplace_back(PlannedRegion{op.op, op.name, op.layer, rows, of_op, region.tasks(), region.total(), {}});
      const std::vector<TaskCost> shares = region.by_thread(size.threads);
      for (size_t i = 0; i < shares.size(); ++i) {
        plan.by_thread[i] = plan.by_thread[i] + shares[i];
        for (int64_t TaskCost::* number : {&TaskCost::bytes, &TaskCost::multiply_adds, &TaskCost::elements})
          planned.largest.*number = std::max(planned.largest.*number, shares[i].*number);
      }
    }
  }
  return plan;
}

DType weight_type_named(std::string_view name, std::string_view setting) {
  for (int number = 0; number < kWeightTypes; ++number)
    if (name_of(static_cast<DType>(number)) == name) return static_cast<DType>(number);
  throw UsageError(std::string(setting) + " is \"" + std::string(name) + "\"; expected a type of weights such as bf16 or q4_0");
}

void set_weight_types(Model& model, DType type) {
  for (const TensorLine& line : model.tensors()) {
    if (line.weight == nullptr) continue;
    Weight& w = *line.weight;
    w.data = nullptr;
    if (static_cast<size_t>(w.by_columns ? w.out : w.in) % block_elements(type) == 0) w.dtype = type;
    w.stride = row_bytes(w.dtype, static_cast<size_t>(w.by_columns ? w.out : w.in));
  }
}

std::vector<ReadPiece> read_pieces(const Model& model, const Numerics& numerics, int threads) {
  std::vector<ReadPiece> pieces;
  for (const OpRecord& op : record_step(model, {.cached = true, .numerics = numerics, .threads = threads, .regions = true}).ops) {
    if (op.spec_as<ExpertSpec>() != nullptr) continue;
    for (const RegionRecord& region : op.regions)
      region.each_piece(threads,
                        [&](int thread, const std::byte* data, int64_t bytes) { pieces.push_back({data, bytes, thread}); });
  }
  std::sort(pieces.begin(), pieces.end(), [](const ReadPiece& a, const ReadPiece& b) { return a.data < b.data; });
  return pieces;
}

}  // namespace vitrine
