#pragma once
// What the pages of pictures for research have in common: the command that makes them, and how they are written.
#include <cstdint>
#include <string>
#include <vector>

#include "cli/session.h"
#include "picture/data/values.h"

namespace vitrine::cli {

/// --page, for commands whose numbers a page shows.
void add_page(CLI::App& app, std::string& page);

/// The prompt as it is typed: "'the king'", "--tokens 2,651", with --no-special. "" if there is none.
std::string prompt_words(const PromptOptions& prompt);
/// What chooses the model and how it computes, each with a space in front: " --model m --compute f32".
std::string model_words(const ModelOptions& options);

/// The last part of the model's path.
std::string short_name(const std::string& model);

/// Writes the page of a document of picture/data/study.h.
void write_study_page(const std::string& path, const PictureJson& document);

/// A checkpoint of a training run.
struct RunCheckpoint {
  int64_t step = 0;
  std::string path;
};
/// The models in a run's folder, by step: folders whose names end in a number ("step-300", "checkpoint-500").
/// Errors: InputError for a folder that cannot be read, that holds none, and for the checkpoints of an adapter.
std::vector<RunCheckpoint> checkpoints_in(const std::string& folder);

}  // namespace vitrine::cli
