#pragma once
// The lines of a family's definition that do a step, found in its embedded text by the tags in their comments.
#include <string_view>
#include <vector>

#include "picture/data/values.h"

namespace vitrine {

/// data.ts' SourceExcerpt for the statements of `file` that carry one of the tags: a comment at the end of a line, "#norm", which
/// the excerpt leaves out. In the file's order; lines that touch are one excerpt.
/// Errors: RunError naming a tag that no line of `file` carries.
PictureJson excerpts(std::string_view file, const std::vector<std::string_view>& tags);

}  // namespace vitrine
