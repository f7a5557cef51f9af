#pragma once
// The sampling options by name: what command line, HTTP, Python, pages and recipes read, check and print.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "vitrine/sampling.h"

namespace vitrine {

/// A number in SamplingOptions. Its name is that of the field and the argument; the flag has - for _.
struct SamplingOption {
  using Member = std::variant<std::optional<double> SamplingOptions::*, std::optional<int64_t> SamplingOptions::*,
                              double SamplingOptions::*, int64_t SamplingOptions::*>;
  const char* name;
  Member member;
  SamplingRule rule;  // that it belongs to; the first option of a rule switches it on
  double low, high;
  double off;            // of the first option of a rule: the rule does nothing
  const char* expected;  // "a probability from 0 to 1"
  const char* help;      // a sentence without its period

  bool is_whole() const;
  bool is_optional() const;
  bool includes_low() const;
  /// The value; null where none is set.
  std::optional<double> get(const SamplingOptions& options) const;
  /// Any number, so that check_sampling_options() can name it; a whole one loses its fraction.
  void set(SamplingOptions& options, double value) const;
  /// As in SamplingOptions{}.
  void reset(SamplingOptions& options) const;
  /// An integer where the option is whole; null where none is set.
  Json json(const SamplingOptions& options) const;
  Json json_of(double value) const;
};

/// Every number but the seed, in the order of help texts.
std::span<const SamplingOption> sampling_options();
/// Null for an unknown name.
const SamplingOption* find_sampling_option(std::string_view name);

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
