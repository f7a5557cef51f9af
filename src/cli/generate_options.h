#pragma once
// The flags that choose tokens, shared by generate and chat.
#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "generate/generate.h"

namespace vitrine::cli {

/// The flags as given; numbers that were not given stay empty.
struct GenerateFlags {
  int64_t max_tokens = 128;
  std::optional<double> temperature, top_p, min_p, typical_p, repetition_penalty, frequency_penalty, presence_penalty,
      length_penalty;
  std::optional<int64_t> top_k;
  std::vector<std::string> logit_bias;
  std::string samplers;
  int64_t seed = 0;
  int64_t beams = 1, n_return = 1;
  std::string early_stopping;  // "", "yes", "no" or "never"
  std::vector<std::string> stops;
  std::string eos;
  bool ignore_eos = false;

  /// Refuses combinations that mean nothing. Errors: UsageError naming both flags.
  void check() const;
  /// Errors: UsageError or InputError naming the flag.
  GenerateOptions options(const Engine& engine) const;
  BeamOptions beam_options(const Engine& engine) const;
};

void add_sampling_flags(CLI::App& app, GenerateFlags& flags);
void add_beam_flags(CLI::App& app, GenerateFlags& flags);
void add_stop_flags(CLI::App& app, GenerateFlags& flags);

class Stopwatch {
 public:
  double ms() const { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started_).count(); }

 private:
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace vitrine::cli
