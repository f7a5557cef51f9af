#pragma once
// vitrine train --one-step: the part of `train` that shows steps on one prompt.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace vitrine::cli {

struct OneStepOptions {
  std::string prompt, target, model;
  double rate = 0.003;
  int64_t steps = 1, top = 10, threads = 0;
  bool given = false, json = false;
};

void add_one_step_options(CLI::App& app, OneStepOptions& options);

/// Takes the steps on a copy of the weights and prints what they did; no file is written.
/// Errors: UsageError without a target, or for one whose tokens are not their own after the prompt; as take_steps.
void run_one_step(const OneStepOptions& options);

}  // namespace vitrine::cli
