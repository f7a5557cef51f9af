#pragma once
// --lens: a tuned lens of the model.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "inspect/tuned_lens.h"

namespace vitrine::cli {

void add_lens_option(CLI::App& app, std::string& path, const std::string& what);
/// Also says, on stderr, where the lens was trained on other weights. Errors: as open_tuned_lens.
std::shared_ptr<const TunedLens> open_lens(const std::string& path, const Engine& engine);

}  // namespace vitrine::cli
