#pragma once
// How the next token is chosen: the rules and their settings. `vitrine generate --help` describes each.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vitrine {

/// First what changes single scores, then the temperature, then the rules that remove tokens.
enum class SamplingRule : std::uint8_t {
  bias,
  repetition,
  frequency,
  presence,
  dry,
  temperature,
  top_k,
  top_p,
  min_p,
  typical,
  top_n_sigma,
  xtc,
  mirostat,
};

/// Decoding is greedy unless one of temperature, top_k, top_p, min_p, typical_p, top_n_sigma, xtc_probability and mirostat is
/// set.
struct SamplingOptions {
  std::optional<double> temperature = {};      // >= 0; 0 is greedy, whatever else is set
  std::optional<std::int64_t> top_k = {};      // >= -1; 0 and -1 are off
  std::optional<double> top_p = {};            // in [0, 1]; 1 is off
  std::optional<double> min_p = {};            // in [0, 1]; 0 is off
  std::optional<double> typical_p = {};        // in (0, 1]; 1 is off
  std::optional<double> top_n_sigma = {};      // >= -1; 0 and less are off
  std::optional<double> xtc_probability = {};  // in [0, 1]; 0 is off
  double xtc_threshold = 0.1;                  // in [0, 1]; above 0.5 XTC is off
  std::int64_t mirostat = 0;                   // version 1 or 2; 0 is off
  double mirostat_tau = 5, mirostat_eta = 0.1;
  double repetition_penalty = 1;  // > 0; over prompt and generated tokens
  double frequency_penalty = 0;   // over generated tokens, for each occurrence
  double presence_penalty = 0;    // over generated tokens, once
  double dry_multiplier = 0;      // 0 is off
  double dry_base = 1.75;
  std::int64_t dry_allowed_length = 2;
  std::int64_t dry_penalty_last_n = -1;                                     // -1: prompt and generated tokens; 0 is off
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};  // repetitions are not followed across them
  std::vector<std::pair<std::int32_t, double>> logit_bias = {};             // token, what is added; -inf forbids the token
  std::uint64_t seed = 0;                                                   // the same seed and options give the same text
  /// The order in which Hugging Face's generate() applies rules; the last three are llama.cpp's.
  std::vector<SamplingRule> order = {
      SamplingRule::bias,        SamplingRule::repetition, SamplingRule::frequency, SamplingRule::presence, SamplingRule::dry,
      SamplingRule::temperature, SamplingRule::top_k,      SamplingRule::top_p,     SamplingRule::min_p,    SamplingRule::typical,
      SamplingRule::top_n_sigma, SamplingRule::xtc,        SamplingRule::mirostat};

  /// Whether the next token is drawn. Otherwise it is the most likely after bias and penalties.
  bool draws() const;
  /// Whether bias or penalties change a score.
  bool changes_scores() const;
};

}  // namespace vitrine
