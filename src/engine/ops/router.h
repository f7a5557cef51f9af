#pragma once
// From a router's logits to the experts that a row goes through, and their weights.
#include "ops/experts.h"

namespace vitrine {

/// For each row of logits [rows, count] the numbers of its per_row best (ExpertSpec), the best first; of equal ones the lower
/// number.
void choose_experts(Context& ctx, const Tensor& logits, const ExpertSpec& spec, int32_t* expert);

/// The weights [rows, per_row] of the chosen experts [rows · per_row] (ExpertSpec). Backward: logits, also from the
/// load-balancing loss, if the context has one; `expert` must live as long as tensors do.
Tensor expert_weights(Context& ctx, const Tensor& logits, const int32_t* expert, const ExpertSpec& spec);

}  // namespace vitrine
