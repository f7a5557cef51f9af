#include "grammar/gbnf_rules.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace vitrine {
namespace {

using Kind = GbnfNode::Kind;

constexpr size_t kDeepest = 400;  // parts within each other, through rules

// Whether it matches some text, when the rules that do are `alive`.
bool lives(const GbnfNode& node, const std::set<std::string>& alive, StepBudget& budget) {
  budget.spend();
  const auto part_lives = [&](const GbnfNode& part) { return lives(part, alive, budget); };
  switch (node.kind) {
    case Kind::chars: return !node.chars.empty();
    case Kind::sequence: return std::ranges::all_of(node.parts, part_lives);
    case Kind::choice: return std::ranges::any_of(node.parts, part_lives);
    case Kind::repeat: return node.least == 0 || part_lives(node.parts[0]);
    case Kind::reference: return alive.contains(node.rule);
  }
  return false;
}

// Of a node that lives.
GbnfNode living(const GbnfNode& node, const std::set<std::string>& alive, StepBudget& budget) {
  GbnfNode kept = node;
  kept.parts.clear();
  for (const GbnfNode& part : node.parts)
    if (lives(part, alive, budget)) kept.parts.push_back(living(part, alive, budget));
  if (kept.kind == Kind::repeat && (kept.parts.empty() || kept.most == 0)) return {.kind = Kind::sequence};
  return kept;
}

template <class F>
void each_reference(const GbnfNode& node, F&& see) {
  if (node.kind == Kind::reference) see(node.rule);
  for (const GbnfNode& part : node.parts) each_reference(part, see);
}

size_t depth(const GbnfNode& node, const std::map<std::string, size_t>& of_rules) {
  size_t deepest = 0;
  if (node.kind == Kind::reference)
    if (const auto rule = of_rules.find(node.rule); rule != of_rules.end()) deepest = rule->second;
  for (const GbnfNode& part : node.parts) deepest = std::max(deepest, depth(part, of_rules));
  return deepest + 1;
}

}  // namespace

GbnfRules without_dead_parts(const GbnfRules& rules, const std::string& source, StepBudget& budget) {
  std::set<std::string> alive;
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [name, node] : rules)
      if (!alive.contains(name) && lives(node, alive, budget)) changed = alive.insert(name).second;
  }
  if (!alive.contains("root"))
    throw InputError(source + ": the rule root matches no text: each of its alternatives needs another");
  GbnfRules kept;
  std::vector<std::string> open = {"root"};
  while (!open.empty()) {
    const std::string name = std::move(open.back());
    open.pop_back();
    if (kept.contains(name)) continue;
    const GbnfNode& node = kept.emplace(name, living(rules.at(name), alive, budget)).first->second;
    each_reference(node, [&](const std::string& rule) {
      if (!kept.contains(rule)) open.push_back(rule);
    });
  }
  return kept;
}

std::set<std::string> regular_rules(const GbnfRules& rules, const std::string& source, StepBudget& budget) {
  std::map<std::string, std::set<std::string>> waits_for, waited_for_by;
  std::vector<std::string> ready;
  for (const auto& [name, node] : rules) {
    each_reference(node, [&](const std::string& rule) {
      budget.spend();
      waits_for[name].insert(rule);
      waited_for_by[rule].insert(name);
    });
    if (!waits_for.contains(name)) ready.push_back(name);
  }
  std::set<std::string> regular;
  std::map<std::string, size_t> depths;
  while (!ready.empty()) {  // the rules that a rule refers to come before it
    const std::string name = std::move(ready.back());
    ready.pop_back();
    regular.insert(name);
    depths[name] = depth(rules.at(name), depths);
    if (depths[name] > kDeepest)
      throw InputError(source + ": the rule " + name + " refers to rules that lie too deep in each other");
    for (const std::string& waiting : waited_for_by[name])
      if (waits_for[waiting].erase(name) > 0 && waits_for[waiting].empty()) ready.push_back(waiting);
  }
  for (const auto& [name, node] : rules)
    if (!regular.contains(name) && depth(node, depths) > kDeepest)
      throw InputError(source + ": the rule " + name + " refers to rules that lie too deep in each other");
  return regular;
}

}  // namespace vitrine
