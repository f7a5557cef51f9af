#pragma once
// A step of the walk-through from its text (steps/README.md describes the form).
#include <span>
#include <string>
#include <string_view>

#include "picture/data/values.h"

namespace vitrine {

/// data.ts' Step of the template with these values; null if the template writes no title. name: for messages. files: whose tagged
/// lines it quotes.
/// Errors: InputError with name and line for a mistake in the template, a value that is missing included; RunError for a tag that
/// `files` lack.
PictureJson step_of(const std::string& id, const std::string& source, const std::string& name, const PictureJson& values,
                    std::span<const std::string_view> files);

}  // namespace vitrine
