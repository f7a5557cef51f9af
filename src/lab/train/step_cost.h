#pragma once
// The work of a training step.
#include <span>

#include "train/data/batch_source.h"
#include "train/parameters.h"

namespace vitrine {

/// FLOP of the products of a step: 6 for each weight of a matrix and token (forward, and twice that backward), and attention
/// over whole sequences, masked pairs included: 12 · n_heads · head_dim · length² for each layer that attends. Embedding rows
/// that are only looked up, and blocks that run again in backward, do not count: that is no work the step needs.
/// frozen: weights that gradients pass through without learning, 4 for each (beside an adapter).
double step_flop(const Parameters& learned, const Model& model, std::span<const int64_t> lengths, double frozen = 0);

}  // namespace vitrine
