#include "io/corpus_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "io/byte_stream.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> texts, objects;
  std::string parquet;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (name.starts_with('.') || !entry.is_regular_file(ignored)) continue;
    if (name_ends_in(name, {".txt", ".jsonl", ".ndjson", ".tar", ".tgz"})) texts.push_back(entry.path().string());
    if (name_ends_in(name, {".json"})) objects.push_back(entry.path().string());
    if (name.ends_with(".parquet")) parquet = name;
  }
  if (error) throw FileError(folder, "cannot be read: " + error.message());
  std::vector<std::string>& found = texts.empty() ? objects : texts;
  if (found.empty() && !parquet.empty())
    throw FileError(folder, "holds Parquet files, such as " + parquet + ". " + parquet_advice(folder));
  if (found.empty())
    throw FileError(folder,
                    "is a folder without text files; expected names ending in .txt, .jsonl, .ndjson, .json or .tar, also "
                    "with .gz or .zst");
  std::sort(found.begin(), found.end());
  return std::move(found);
}

std::vector<std::string> files_like(const std::string& pattern) {
  glob_t matches{};
  const int status = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &matches);
  std::vector<std::string> found(matches.gl_pathv, matches.gl_pathv + (status == 0 ? matches.gl_pathc : 0));
  ::globfree(&matches);
  if (found.empty()) throw FileError(pattern, "matches no file");
  std::sort(found.begin(), found.end());  // by bytes, whatever the locale
  return found;
}

}  // namespace

std::vector<std::string> corpus_files(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (const std::string& path : paths) {
    std::error_code ignored;
    std::vector<std::string> some = {path};
    if (fs::is_directory(path, ignored))
      some = files_in(path);
    else if (path.find_first_of("*?[") != std::string::npos && !fs::exists(path, ignored))
      some = files_like(path);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace vitrine
