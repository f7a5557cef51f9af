#include "grammar/gbnf_rules.h"

#include <algorithm>
#include <cstdint>
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

// How a regular part may begin. Numbers of parts, which references can double at each rule: a double of them becomes infinite.
struct Beginnings {
  double count = 0;     // of the parts that may come first
  double optional = 0;  // parts that may be left out, if all may be
  double steps = 0;
  bool nullable = false;
};

class BeginningCounter {
 public:
  BeginningCounter(const GbnfRules& rules, const std::set<std::string>& regular) : rules_(rules), regular_(regular) {}

  Beginnings of(const GbnfNode& node) {
    Beginnings all;
    switch (node.kind) {
      case Kind::chars: return {.count = 1};
      case Kind::repeat:
        all = of(node.parts[0]);
        all.nullable = all.nullable || node.least == 0;
        if (all.nullable) all.optional = std::max(all.optional, 1.0);
        return all;
      case Kind::choice:
        for (const GbnfNode& part : node.parts) {
          const Beginnings one = of(part);
          all.count += one.count;
          all.optional += one.optional;
          all.steps += one.steps;
          all.nullable = all.nullable || one.nullable;
        }
        if (all.nullable) all.optional = std::max(all.optional, 1.0);
        return all;
      case Kind::reference: {
        if (!regular_.contains(node.rule)) return {.count = 1};
        const auto known = of_rules_.find(node.rule);
        return known != of_rules_.end() ? known->second : of_rules_.emplace(node.rule, of(rules_.at(node.rule))).first->second;
      }
      case Kind::sequence: {
        all.nullable = true;
        for (const GbnfNode& part : node.parts) {
          const Beginnings one = of(part);
          all.steps += one.steps;
          if (all.optional > 0) all.steps += all.optional * one.count;
          if (all.nullable) all.count += one.count;
          all.nullable = all.nullable && one.nullable;
          all.optional = one.nullable ? all.optional + one.optional : 0;  // in a row
        }
        if (!all.nullable) all.optional = 0;
        return all;
      }
    }
    return all;
  }

 private:
  const GbnfRules& rules_;
  const std::set<std::string>& regular_;
  std::map<std::string, Beginnings> of_rules_;
};

}  // namespace

GbnfRules without_dead_parts(const GbnfRules& rules, const std::string& source, StepBudget& budget) {
  std::map<std::string, std::vector<std::string>> users;  // of a rule, those that refer to it
  std::vector<std::string> waiting;                       // to be looked at, at first or again
  for (const auto& [name, node] : rules) {
    each_reference(node, [&](const std::string& rule) {
      budget.spend();
      if (users[rule].empty() || users[rule].back() != name) users[rule].push_back(name);
    });
    waiting.push_back(name);
  }
  std::set<std::string> alive;
  while (!waiting.empty()) {
    const std::string name = std::move(waiting.back());
    waiting.pop_back();
    if (alive.contains(name) || !lives(rules.at(name), alive, budget)) continue;
    alive.insert(name);
    waiting.insert(waiting.end(), users[name].begin(), users[name].end());
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

void spend_optional_parts(const GbnfRules& rules, const std::set<std::string>& regular, StepBudget& budget) {
  BeginningCounter counter(rules, regular);
  double steps = 0;
  for (const auto& [name, node] : rules)
    if (name == "root" || !regular.contains(name)) steps += counter.of(node).steps;
  budget.spend(steps < 1e18 ? static_cast<uint64_t>(steps) : UINT64_MAX);
}

}  // namespace vitrine
