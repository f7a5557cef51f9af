#pragma once
// Texts from other folders that pictures read: a passage, the log of a training run. They are compiled in with the chapters.
#include <string_view>

namespace vitrine {

/// A file of the source tree by its path ("examples/fables.txt"); empty if this build has none of that name.
std::string_view shipped_text(std::string_view path);

}  // namespace vitrine
