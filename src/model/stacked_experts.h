#pragma once
// How a Hugging Face directory stores its experts.
#include "io/stored_tensor.h"

namespace vitrine {

/// Whether a tensor holds a matrix of all experts, as transformers 5 may write them; else each expert has tensors of its own.
/// The family's list of tensors follows it (ModelFiles::stacked_experts).
bool holds_stacked_experts(const Checkpoint& checkpoint);

}  // namespace vitrine
