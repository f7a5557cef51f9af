#pragma once
// A regular part of a grammar as its places (Glushkov's automaton): each is a character of the text, and says which may follow.
// V. M. Glushkov, The abstract theory of automata, 1961.
#include <cstdint>
#include <optional>
#include <vector>

#include "grammar/gbnf.h"
#include "grammar/step_budget.h"

namespace vitrine {

struct Positions {
  std::vector<const CharSet*> chars;         // of each place, in the grammar
  std::vector<std::vector<uint32_t>> after;  // the places that may follow it
  std::vector<uint32_t> first, last;         // where a text may begin and end
  bool nullable = false;                     // the empty text is one

  CharSet first_chars() const;
};

/// Nothing if there are more than a few thousand places. References must not come back to a rule.
std::optional<Positions> positions(const GbnfNode& node, const GbnfRules& rules, StepBudget& budget);

/// Whether behind some text of `a`, not the empty one, a character of `next` may go on a text of `b` with the same beginning.
bool may_extend(const Positions& a, const Positions& b, const CharSet& next, StepBudget& budget);

}  // namespace vitrine
