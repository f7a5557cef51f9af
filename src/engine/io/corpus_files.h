#pragma once
// A corpus of many files by one name.
#include <string>
#include <vector>

namespace vitrine {

/// The files that the paths name, in their order. A folder stands for the files in it that text is read from (.txt, .jsonl,
/// .ndjson, .tar, .tgz, also with .gz or .zst; without any of these, .json), and a path with *, ? or [ that does not exist for
/// those that it matches; in the order of their names. Errors: FileError for a folder without such files, for a pattern that
/// matches none.
std::vector<std::string> corpus_files(const std::vector<std::string>& paths);

}  // namespace vitrine
