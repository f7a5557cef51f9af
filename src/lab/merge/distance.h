#pragma once
// How far a model's weights are from another's.
#include <optional>

#include "io/stored_tensor.h"
#include "merge/input.h"

namespace vitrine {

/// ‖a - b‖₂ over all weights of b, in double. Nothing if `a` lacks one of them or has it in another shape. Tensors of whole
/// numbers do not count.
std::optional<double> weight_distance(const Checkpoint& a, const MergeInput& b);

}  // namespace vitrine
