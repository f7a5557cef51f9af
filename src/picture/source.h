#pragma once
// The lines of a family's definition that do a step, found in its embedded text by what they say.
#include <string>
#include <string_view>
#include <vector>

#include "picture/values.h"

namespace vitrine {

/// From the first line at or after the last find that contains `from`, up to the first one from there that contains `to` and
/// on to the end of that statement. An empty `to` means one statement.
struct SourceAnchor {
  std::string_view from, to = {};
};

/// The file that defines a family: "src/model/llama.cpp" for "mistral". Errors: RunError for a family without one.
std::string definition_of(std::string_view family);

/// data.ts' SourceExcerpt for each anchor, in the file's order of the finds. Errors: RunError naming the anchor that no line of
/// `file` fits: the definition has changed, and the anchor must follow it.
PictureJson excerpts(std::string_view file, const std::vector<SourceAnchor>& anchors);

}  // namespace vitrine
