#pragma once
// --lora: LoRA adapters beside the model, each with a scale.
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "cli/session.h"

namespace vitrine::cli {

/// FOLDER, or FOLDER:SCALE where what follows the last colon is a number.
struct LoraWord {
  std::string path;
  double scale = 1;
};
/// Errors: UsageError for an empty folder and a scale that is not finite.
LoraWord parse_lora(std::string_view word);

/// --lora FOLDER[:SCALE], may be repeated: what open_engine() runs the model with.
void add_lora_option(CLI::App& app, ModelOptions& options);

}  // namespace vitrine::cli
