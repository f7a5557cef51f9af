#pragma once
// What is to be known of GBNF rules before they are rewritten.
#include <set>
#include <string>

#include "grammar/gbnf.h"
#include "grammar/step_budget.h"

namespace vitrine {

/// The rules without what matches no text, and without those that root does not reach. Errors: InputError if root matches no
/// text.
GbnfRules without_dead_parts(const GbnfRules& rules, const std::string& source, StepBudget& budget);

/// The names of the rules that refer neither to themselves nor to such a rule. Errors: InputError for rules that lie too deep in
/// each other.
std::set<std::string> regular_rules(const GbnfRules& rules, const std::string& source, StepBudget& budget);

/// Spends a step for each pair of an optional part and a part that may stand in its place, such as (n - 1) n / 2 of "a"? n times.
/// llguidance's lexer holds them all.
void spend_optional_parts(const GbnfRules& rules, const std::set<std::string>& regular, StepBudget& budget);

}  // namespace vitrine
