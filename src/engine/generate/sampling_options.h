#pragma once
// What may change the choice of the next token, and in which order. The same object serves the command line and requests
// and prints itself as a recipe, so that one can reproduce the other.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace vitrine {

enum class SamplingRule : uint8_t { bias, repetition, frequency, presence, temperature, top_k, top_p, min_p, typical };

/// The order in which Hugging Face's generate() applies them: first what changes single scores, then the temperature,
/// then the rules that cut, each seeing what the one before it left.
inline constexpr SamplingRule kDefaultSamplingOrder[] = {
    SamplingRule::bias,  SamplingRule::repetition, SamplingRule::frequency, SamplingRule::presence, SamplingRule::temperature,
    SamplingRule::top_k, SamplingRule::top_p,      SamplingRule::min_p,     SamplingRule::typical};

struct SamplingOptions {
  std::optional<double> temperature = {};                   // > 0; 0 means greedy whatever else is set
  std::optional<int64_t> top_k = {};                        // >= 1; 0 switches the rule off
  std::optional<double> top_p = {};                         // in [0, 1]; 1 switches the rule off
  std::optional<double> min_p = {};                         // in [0, 1]
  std::optional<double> typical_p = {};                     // in (0, 1]; 1 switches the rule off
  double repetition_penalty = 1;                            // > 0; over prompt and generated tokens
  double frequency_penalty = 0;                             // over generated tokens, per occurrence
  double presence_penalty = 0;                              // over generated tokens, once
  std::vector<std::pair<int32_t, double>> logit_bias = {};  // token, what is added; -inf forbids the token
  uint64_t seed = 0;
  std::vector<SamplingRule> order{std::begin(kDefaultSamplingOrder), std::end(kDefaultSamplingOrder)};

  /// Whether the next token is drawn. Otherwise it is the most likely after bias and penalties (greedy): so it is if none of
  /// temperature, top_k, top_p, min_p, typical_p is given, or if the temperature is 0.
  bool draws() const;
  /// Whether bias or penalties change a score.
  bool changes_scores() const;
};

/// "bias,repetition,...": the names of the rules in order.
std::string sampling_order_text(const std::vector<SamplingRule>& order);

/// Reads such a list. A rule that is left out is not applied.
/// Errors: UsageError for a name that is unknown (naming the known ones) or comes twice.
std::vector<SamplingRule> parse_sampling_order(std::string_view names);

/// Errors: UsageError naming the option, its value and the allowed range; also for a rule that is set but missing in `order`
/// and for a bias on a token outside the vocabulary.
void check_sampling_options(const SamplingOptions& options, int64_t vocab_size);

/// Everything that decides the choice: "greedy" or the rules that act, in their order, with values and seed.
Json sampling_recipe(const SamplingOptions& options);

}  // namespace vitrine
