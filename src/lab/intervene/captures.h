#pragma once
// The hooks that an intervention touches.
#include <cstdint>
#include <string>
#include <vector>

#include "hooks/hooks.h"
#include "intervene/recipe.h"
#include "runtime/engine.h"

namespace vitrine {

/// A hook may come more than once, with slices that do not overlap: what an intervention names several times is changed once.
/// rows: tokens of the prompt that runs. Errors: InputError for parts that the model lacks.
std::vector<Capture> captures_of(const Engine& engine, const Intervention& intervention, int64_t rows);

/// Hooks whose sum enters the norm; none where no hook shows it (the second norm after the MLP, an RMSNorm).
std::vector<std::string> inputs_of_norm(const Engine& engine, const std::string& norm);

}  // namespace vitrine
