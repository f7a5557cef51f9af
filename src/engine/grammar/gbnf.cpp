#include "grammar/gbnf.h"

#include <fmt/format.h>

#include "grammar/gbnf_rules.h"
#include "grammar/lexemes.h"

namespace vitrine {
namespace {

constexpr uint64_t kMostSteps = 20'000'000;  // of the analysis: a fraction of a second

class LarkWriter {
 public:
  explicit LarkWriter(const TwoLevels& levels) : levels_(levels) {
    for (const auto& [name, part] : levels.rules) names_.emplace(name, fmt::format("g{}", names_.size()));
  }

  std::string text() {
    std::string out = "start: " + names_.at("r:root") + "\n";
    for (const auto& [name, part] : levels_.rules) out += names_.at(name) + ": " + expression(part) + "\n";
    for (size_t i = 0; i < levels_.lexemes.size(); ++i) out += fmt::format("T{}: {}\n", i, levels_.lexemes[i]);
    return out;
  }

 private:
  std::string expression(const RulePart& part) {
    switch (part.kind) {
      case RulePart::Kind::lexeme: return fmt::format("T{}", part.lexeme);
      case RulePart::Kind::reference: return names_.at(part.rule);
      case RulePart::Kind::repeat: {
        const std::string times = part.most != GbnfNode::kNoLimit ? fmt::format("{{{},{}}}", part.least, part.most)
                                  : part.least == 0               ? "*"
                                  : part.least == 1               ? "+"
                                                                  : fmt::format("{{{},}}", part.least);
        return "(" + expression(part.parts[0]) + ")" + times;
      }
      case RulePart::Kind::sequence:
      case RulePart::Kind::choice: {
        std::string all;
        for (const RulePart& one : part.parts)
          all += (all.empty() ? "" : part.kind == RulePart::Kind::choice ? " | " : " ") + expression(one);
        return part.parts.empty() ? "\"\"" : "(" + all + ")";
      }
    }
    return "";
  }

  const TwoLevels& levels_;
  std::map<std::string, std::string> names_;
};

}  // namespace

std::string gbnf_to_lark(std::string_view text, const std::string& source) {
  StepBudget budget(kMostSteps, source);
  const GbnfRules rules = without_dead_parts(read_gbnf(text, source), source, budget);
  const std::set<std::string> regular = regular_rules(rules, source, budget);
  spend_optional_parts(rules, regular, budget);
  std::map<std::string, std::string> names;
  std::string terminals;
  for (const std::string& rule : regular) names.emplace(rule, fmt::format("R{}", names.size()));
  for (const std::string& rule : regular) terminals += names.at(rule) + ": " + lark_terminal(rules.at(rule), names) + "\n";
  if (regular.contains("root")) return "start: " + names.at("root") + "\n" + terminals;  // one lexeme has no end to be found
  return LarkWriter(two_levels(rules, regular, names, budget)).text() + terminals;
}

}  // namespace vitrine
