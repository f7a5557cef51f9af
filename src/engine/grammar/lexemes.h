#pragma once
// A grammar with recursive rules as two levels: lexemes, which are regular parts, and the rules over them.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "grammar/gbnf.h"
#include "grammar/positions.h"
#include "grammar/step_budget.h"

namespace vitrine {

struct RulePart {
  enum class Kind : uint8_t { lexeme, sequence, choice, repeat, reference };
  Kind kind = Kind::sequence;
  size_t lexeme = 0;
  std::vector<RulePart> parts = {};
  uint32_t least = 0, most = 0;
  std::string rule = {};  // "r:" or "s:" and the name of a GBNF rule; s: a regular one that is split
};

struct TwoLevels {
  std::vector<std::string> lexemes;       // as terminals of Lark
  std::map<std::string, RulePart> rules;  // the first is "r:root"
};

/// Lark's text for a regular part; references stand as name(rule).
std::string lark_terminal(const GbnfNode& node, const std::map<std::string, std::string>& names);

/// As large lexemes as can be told apart by the next character (see gbnf_to_lark). names: of regular rules as terminals.
TwoLevels two_levels(const GbnfRules& rules, const std::set<std::string>& regular,
                     const std::map<std::string, std::string>& names, StepBudget& budget);

}  // namespace vitrine
