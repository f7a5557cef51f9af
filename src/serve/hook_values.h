#pragma once
// Values of hooks as answers tell them.
#include <string>

#include "ops/recorder.h"
#include "serve/api_error.h"

namespace vitrine::serve {

inline constexpr size_t kMostNumbers = size_t{4} << 20;  // of an answer in JSON

/// `object` with one member more behind the others, whose value is JSON text.
std::string with_member(const OrderedJson& object, const std::string& name, const std::string& text);

/// A list of {name, shape, values}: nested lists, as NumPy's tolist() gives them, with null for what is not finite; how many
/// those are is told as not_finite.
std::string hooks_text(const Recorder& recorder);

}  // namespace vitrine::serve
