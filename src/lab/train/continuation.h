#pragma once
// On-policy batches: the beginnings of sequences of the data, continued by the model that learns.
#include <cstdint>

#include "runtime/engine.h"
#include "train/data/batch_source.h"
#include "train/distill_options.h"

namespace vitrine {

/// Keeps the first options.prompt of every sequence and draws the rest from the engine's model, up to the length that the
/// sequence had or to an end token. Scored are the rows that predict what was drawn. Draws depend on seed, `number`, the
/// sequence's first row among those of all ranks and the place alone. A sequence of one token has nothing to draw and is left
/// out; the batch may end up with none.
/// Errors: RunError for NaN, as Engine::run.
Batch continued_by(Engine& engine, const Batch& batch, const DistillOptions& options, uint64_t seed, uint64_t number);

}  // namespace vitrine
