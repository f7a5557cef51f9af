#pragma once
// The record of a step as data: what `vitrine info --ops` shows.
#include "base/json.h"
#include "model/model.h"

namespace vitrine {

/// {"rows", "position", "multiply_adds", "bytes_read", "peak_bytes", "kept_bytes" (of a step that trains),
///  "ops": [{"op", "name", "layer" (null outside of the blocks), "inputs" and "outputs": [{"value", "shape"}],
///           "weights": [our names], "spec" (null without), "cache_layer" (null without), "multiply_adds", "bytes_read",
///           "bytes_made", "bytes_kept", "bytes_peak"}],
///  "hooks": [{"name", "shape"}]}
/// Values are numbered in the order in which they are made; views have the number of what they show.
Json step_json(const Model& model, const StepSize& size);

}  // namespace vitrine
