#pragma once
// The flags that put a sparse autoencoder or transcoder into a run, and change its features there.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/session.h"
#include "hooks/spliced_model.h"
#include "ops/context.h"
#include "runtime/engine.h"

namespace vitrine::cli {

struct SaeFlags {
  std::string directory, hook;
  std::vector<std::string> edits;

  /// Errors: UsageError for flags that need another one, and for beams, whose sequences are several. recipe: whether one names
  /// changes too.
  void check(int64_t beams, bool recipe) const;
  /// What listens to the run; null without --steer. Errors: as read_sae or read_cross_layer, check_fits, and the readers of
  /// edits.
  std::unique_ptr<Listener> open(const Engine& engine) const;
};

void add_sae_flags(CLI::App& app, SaeFlags& flags);

/// --sae of commands that name hooks: autoencoders for ModelOptions::through, by through_saes.
void add_sae_option(CLI::App& app, std::vector<SaeFile>& saes);

}  // namespace vitrine::cli
