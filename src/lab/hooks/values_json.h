#pragma once
// Values of hooks as answers tell them.
#include <cstddef>
#include <string>

#include "ops/recorder.h"

namespace vitrine {

inline constexpr size_t kMostNumbers = size_t{4} << 20;  // of an answer in JSON

/// A list of {name, shape, values}: nested lists, as NumPy's tolist() gives them, with null for what is not finite; how many
/// those are is told as not_finite.
std::string hooks_text(const Recorder& recorder);

}  // namespace vitrine
