#pragma once
// What `vitrine picture` and `vitrine explain` share.
#include <optional>
#include <span>
#include <string>

#include "cli/session.h"
#include "picture/data/document.h"
#include "picture/data/request.h"

namespace vitrine::cli {

struct PictureArguments {
  ModelOptions model;
  PromptOptions prompt;
  std::string name, out, config, lens, chapter = "next-word";
  std::optional<std::string> words, sum;
  int64_t layer = -1, head = -1, position = -1;  // -1: not given
  bool list = false, svg = false, no_gradients = false, open = false, live = false;
};

/// --list, of all pictures or of these.
void list_pictures(bool json, std::span<const PictureInfo> list);
/// Errors: UsageError for several sequences.
PicturePrompt prompt_of(Engine& engine, const PictureArguments& o);
/// Errors: UsageError for empty lists and for texts that are not UTF-8.
PictureOptions picture_options(const PictureArguments& o);
/// Also tells its size, on stderr.
void write_file(const std::string& path, const std::string& text);

}  // namespace vitrine::cli
