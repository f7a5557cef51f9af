#include "cli/study.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/shell_word.h"
#include "cli/options.h"
#include "cli/output.h"
#include "io/atomic_file.h"
#include "picture/page/page.h"

namespace vitrine::cli {
namespace {

namespace fs = std::filesystem;

// The number behind the last '-' of a folder's name; -1: there is none.
int64_t step_in(const std::string& name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string::npos || dash + 1 == name.size()) return -1;
  int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data() + dash + 1, name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() && step >= 0 ? step : -1;
}

}  // namespace

void add_page(CLI::App& app, std::string& page) {
  app.add_option("--page", page, "Also write these numbers as pictures on an offline page (replaced if it exists)")
      ->type_name("PAGE.html")
      ->check(not_empty());
}

std::string prompt_words(const PromptOptions& prompt) {
  std::string words = prompt.no_special ? "--no-special " : "";
  if (prompt.has_tokens) return words + "--tokens " + shell_word(prompt.tokens);
  if (!prompt.has_text) return "";
  return words + (prompt.text.starts_with('-') ? "-- " : "") + shell_word(prompt.text);
}

std::string model_words(const ModelOptions& options) {
  std::string words;
  if (!options.model.empty()) words += " --model " + shell_word(options.model);
  if (!options.adapter.empty()) words += " --adapter " + shell_word(options.adapter);
  if (options.compute != "auto") words += " --compute " + options.compute;
  if (options.exact) words += " --exact";
  return words;
}

std::string short_name(const std::string& model) {
  const fs::path path = fs::path(model).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

void write_study_page(const std::string& path, const PictureJson& document) {
  const std::string page = study_page(document);
  write_file_atomically(path, page);
  log("{} written, {}", path, bytes_text(static_cast<double>(page.size())));
}

std::vector<RunCheckpoint> checkpoints_in(const std::string& folder) {
  std::error_code error;
  std::vector<RunCheckpoint> found;
  bool adapters = false;
  fs::directory_iterator entries(folder, error);
  if (error) throw InputError("--checkpoints " + folder + ": the folder cannot be read: " + error.message());
  for (const fs::directory_entry& entry : entries) {
    const int64_t step = step_in(entry.path().filename().string());
    if (step < 0 || !entry.is_directory(error)) continue;
    if (fs::exists(entry.path() / "config.json", error)) {
      found.push_back({step, entry.path().string()});
    } else if (fs::exists(entry.path() / "adapter_config.json", error)) {
      adapters = true;
    }
  }
  if (found.empty())
    throw InputError(
        "--checkpoints " + folder + ": " +
        (adapters ? "its checkpoints are an adapter's. Give the model and one of them: --model M --adapter " + folder + "/step-N"
                  : "no checkpoint in it; expected the folder of a run with step-N/config.json in it, as `vitrine "
                    "train` writes them (checkpoint.keep says how many stay)"));
  std::sort(found.begin(), found.end(),
            [](const RunCheckpoint& a, const RunCheckpoint& b) { return a.step != b.step ? a.step < b.step : a.path < b.path; });
  return found;
}

}  // namespace vitrine::cli
