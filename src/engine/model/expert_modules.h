#pragma once
// Matrices of all experts of a layer as one module, as PEFT adapts a parameter that holds them all (`target_parameters`).
#include <vector>

#include "model/adapter.h"

namespace vitrine {

/// "….mlp.experts.gate_up_proj" and "….mlp.experts.down_proj" of each layer with experts, whatever tensors the model's file has
/// for them.
std::vector<Adapter::Module> expert_modules(const OpenedModel& opened);

/// B as PEFT stores it: [out, rank · experts] with the experts of a rank side by side, and as it lies in memory: [experts, out,
/// rank]. Of a single matrix the two are the same, but for the order of rows.
size_t place_in_file(const Adapter::Module& module, int64_t expert, int64_t out, int64_t rank);

}  // namespace vitrine
