#pragma once
// The flags that choose tokens, shared by generate and chat.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generate/generate.h"

namespace vitrine::cli {

/// The flags as given.
struct GenerateFlags {
  int64_t max_tokens = 128;
  SamplingOptions sampling;                                    // without biases, order and seed
  std::vector<std::string> logit_bias, dry_sequence_breakers;  // read by options()
  std::string samplers;
  std::vector<const CLI::Option*> rules;  // the flags of `sampling` and logit_bias, which know whether they were given
  int64_t seed = 0;
  int64_t beams = 1, n_return = 1;
  std::optional<double> length_penalty;
  std::string early_stopping;  // "", "yes", "no" or "never"
  std::vector<std::string> stops;
  std::string eos;
  bool ignore_eos = false;
  int64_t lookup = 0;  // 0: not given
  std::string draft;
  int64_t draft_tokens = 0;                    // 0: not given
  std::string json_schema, regex, gbnf, lark;  // "": not given

  /// Refuses combinations that mean nothing. Errors: UsageError naming both flags.
  void check() const;
  /// Errors: UsageError or InputError naming the flag.
  GenerateOptions options(const Engine& engine) const;
  /// What --lookup or --draft ask for; null if neither is given. Errors: as ModelDrafter, and as open_model.
  std::shared_ptr<Drafter> open_drafter(Engine& engine) const;
  /// What --json-schema, --regex, --grammar or --lark ask for; null if none is given. Errors: as GrammarCompiler and compile().
  std::shared_ptr<const Constraint> open_constraint(const Engine& engine) const;
  BeamOptions beam_options(const Engine& engine) const;

 private:
  std::string given_rule() const;  // the flag; "" if there is none
  std::vector<const char*> given_grammars() const;
};

/// The flags of the rules that depend on nothing but the logits: --temperature to --top-n-sigma. `s` must live until the command
/// has run.
void add_draw_flags(CLI::App& app, SamplingOptions& s);
void add_sampling_flags(CLI::App& app, GenerateFlags& flags);
void add_beam_flags(CLI::App& app, GenerateFlags& flags);
void add_stop_flags(CLI::App& app, GenerateFlags& flags);
void add_draft_flags(CLI::App& app, GenerateFlags& flags);
void add_grammar_flags(CLI::App& app, GenerateFlags& flags);

/// Says on standard error how many tokens were drafted and accepted, if any were drafted.
void log_drafts(const Timings& timings);

}  // namespace vitrine::cli
