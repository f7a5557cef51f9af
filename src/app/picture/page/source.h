#pragma once
// The lines of a family's definition that do a step, found in its embedded texts by the tags in their comments.
#include <span>
#include <string_view>
#include <vector>

#include "picture/data/values.h"

namespace vitrine {

/// data.ts' SourceExcerpt for the statements that carry one of the tags: a comment at the end of a line, "#norm", which the
/// excerpt leaves out. A tag is looked for in one of `files` after the other and quoted from the first that carries it. In the
/// order of the files and of their lines; lines that touch are one excerpt.
/// Errors: RunError naming a tag that no line carries.
PictureJson excerpts(std::span<const std::string_view> files, const std::vector<std::string_view>& tags);

}  // namespace vitrine
