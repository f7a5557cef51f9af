#include "grammar/regex_cost.h"

#include "base/error.h"

namespace vitrine {

uint64_t optional_pairs(std::string_view regex) {
  uint64_t optional = 0, choices = 0;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i], next = i + 1 < regex.size() ? regex[i + 1] : ')';
    const bool empty = (c == '(' || c == '|') && (next == '|' || next == ')');
    if (c == '?' || c == '*' || c == '{' || empty) ++optional;
    if (c == '|') ++choices;
  }
  return optional * (optional + choices) / 2;
}

void check_optional_pairs(uint64_t pairs, const std::string& source) {
  constexpr uint64_t kMostOptionalPairs = 20'000'000;
  if (pairs > kMostOptionalPairs)
    throw InputError(source +
                     ": has too many optional parts in regular expressions (marked by ?, * or {}): thousands in one are too "
                     "costly");
}

}  // namespace vitrine
