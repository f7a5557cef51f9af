#include "grammar/lexemes.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

namespace vitrine {
namespace {

using Kind = GbnfNode::Kind;

std::string repetition(const GbnfNode& node) {
  if (node.most != GbnfNode::kNoLimit) return fmt::format("{{{},{}}}", node.least, node.most);
  return node.least == 0 ? "*" : node.least == 1 ? "+" : fmt::format("{{{},}}", node.least);
}

/// One attempt: of the regular parts whose text is in `split`, each part is a lexeme of its own.
class Splitter {
 public:
  struct Lexeme {
    GbnfNode node;
    std::optional<Positions> places;  // nothing: too many
    CharSet first, next;              // with what it may begin, and what may follow it
  };

  Splitter(const GbnfRules& rules, const std::set<std::string>& regular, const std::map<std::string, std::string>& names,
           const std::set<std::string>& split, StepBudget& budget)
      : rules_(rules), regular_(regular), names_(names), split_(split), budget_(budget) {
    reference("r:", "root");
    while (!open_.empty()) {
      const std::string name = std::move(open_.back());
      open_.pop_back();
      const GbnfNode& node = rules_.at(name.substr(2));
      RulePart part = name.starts_with("s:") ? lexeme(node) : mixed(node);
      out_.rules[name] = std::move(part);
    }
    find_neighbors();
  }

  // The texts of the lexemes that must be split, since the lexer may read on in them behind the end of one.
  std::set<std::string> uncertain() {
    std::set<std::string> found;
    for (size_t b = 0; b < lexemes_.size(); ++b) {
      const Lexeme& longer = lexemes_[b];
      const bool single = longer.node.kind == Kind::chars;
      for (size_t a = 0; a < lexemes_.size() && !single; ++a) {
        const Lexeme& ended = lexemes_[a];
        budget_.spend(1 + ended.first.size() + longer.first.size());
        if (longer.places) {
          if (!ended.places || !ended.first.meets(longer.first)) continue;
          if (!may_extend(*ended.places, *longer.places, ended.next, budget_)) continue;
        }
        found.insert(out_.lexemes[b]);
        break;
      }
    }
    return found;
  }

  TwoLevels take() && { return std::move(out_); }

 private:
  struct Facts {
    bool nullable = false;
    CharSet first;
  };

  bool is_regular(const GbnfNode& node) {
    budget_.spend();
    if (node.kind == Kind::reference) return regular_.contains(node.rule);
    return std::ranges::all_of(node.parts, [&](const GbnfNode& part) { return is_regular(part); });
  }

  RulePart reference(const char* kind, const std::string& rule) {
    std::string name = kind + rule;
    if (out_.rules.try_emplace(name).second) open_.push_back(name);
    return {.kind = RulePart::Kind::reference, .rule = std::move(name)};
  }

  // A regular part.
  RulePart lexeme(GbnfNode node) {
    std::string text = lark_terminal(node, names_);
    budget_.spend(text.size());
    if (node.kind != Kind::chars && split_.contains(text)) return apart(node);
    const auto [at, added] = index_.try_emplace(text, lexemes_.size());
    if (added) {
      lexemes_.push_back({.node = std::move(node), .places = {}, .first = {}, .next = {}});
      Lexeme& l = lexemes_.back();
      l.places = positions(l.node, rules_, budget_);
      l.first = l.places ? l.places->first_chars() : CharSet::any();
      out_.lexemes.push_back(std::move(text));
    }
    return {.kind = RulePart::Kind::lexeme, .lexeme = at->second};
  }

  // A part that refers to recursive rules.
  RulePart mixed(const GbnfNode& node) {
    if (is_regular(node)) return lexeme(node);
    switch (node.kind) {
      case Kind::reference: return reference("r:", node.rule);
      case Kind::sequence: {
        RulePart whole{.kind = RulePart::Kind::sequence};
        GbnfNode run{.kind = Kind::sequence};
        const auto end_run = [&] {
          if (run.parts.size() == 1) run = GbnfNode(run.parts[0]);
          if (run.kind != Kind::sequence || !run.parts.empty()) whole.parts.push_back(lexeme(std::move(run)));
          run = {.kind = Kind::sequence};
        };
        for (const GbnfNode& part : node.parts) {
          if (is_regular(part)) {
            run.parts.push_back(part);
          } else {
            end_run();
            whole.parts.push_back(mixed(part));
          }
        }
        end_run();
        return whole;
      }
      default: {
        RulePart whole{.kind = node.kind == Kind::choice ? RulePart::Kind::choice : RulePart::Kind::repeat,
                       .least = node.least,
                       .most = node.most};
        for (const GbnfNode& part : node.parts) whole.parts.push_back(mixed(part));
        return whole;
      }
    }
  }

  // A regular part that is split, one level down.
  RulePart apart(const GbnfNode& node) {
    if (node.kind == Kind::reference) return reference("s:", node.rule);
    RulePart whole{.kind = node.kind == Kind::sequence ? RulePart::Kind::sequence
                           : node.kind == Kind::choice ? RulePart::Kind::choice
                                                       : RulePart::Kind::repeat,
                   .least = node.least,
                   .most = node.most};
    for (const GbnfNode& part : node.parts) whole.parts.push_back(lexeme(part));
    return whole;
  }

  Facts facts(const RulePart& part) {
    budget_.spend();
    Facts f;
    switch (part.kind) {
      case RulePart::Kind::lexeme: {
        const Lexeme& l = lexemes_[part.lexeme];
        return {!l.places || l.places->nullable, l.first};
      }
      case RulePart::Kind::reference: return facts_[part.rule];
      case RulePart::Kind::repeat:
        f = facts(part.parts[0]);
        f.nullable = f.nullable || part.least == 0;
        return f;
      case RulePart::Kind::choice:
        for (const RulePart& one : part.parts) {
          const Facts its = facts(one);
          f.first.add(its.first);
          f.nullable = f.nullable || its.nullable;
        }
        return f;
      case RulePart::Kind::sequence:
        f.nullable = true;
        for (const RulePart& one : part.parts) {
          if (!f.nullable) break;
          const Facts its = facts(one);
          f.first.add(its.first);
          f.nullable = its.nullable;
        }
        return f;
    }
    return f;
  }

  // What follows `part` where `next` follows the whole.
  void follow(const RulePart& part, const CharSet& next) {
    budget_.spend(1 + next.size());
    switch (part.kind) {
      case RulePart::Kind::lexeme: lexemes_[part.lexeme].next.add(next); return;
      case RulePart::Kind::reference: next_[part.rule].add(next); return;
      case RulePart::Kind::choice:
        for (const RulePart& one : part.parts) follow(one, next);
        return;
      case RulePart::Kind::repeat: {
        CharSet both = next;
        if (part.most > 1) both.add(facts(part.parts[0]).first);
        return follow(part.parts[0], both);
      }
      case RulePart::Kind::sequence: {
        CharSet behind = next;
        for (size_t i = part.parts.size(); i-- > 0;) {
          follow(part.parts[i], behind);
          const Facts its = facts(part.parts[i]);
          if (!its.nullable) behind = {};
          behind.add(its.first);
        }
        return;
      }
    }
  }

  void find_neighbors() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [name, part] : out_.rules) {
        Facts now = facts(part);
        Facts& known = facts_[name];
        now.first.add(known.first);
        changed = changed || now.nullable != known.nullable || now.first != known.first;
        known = std::move(now);
      }
    }
    for (bool changed = true; changed;) {
      const auto before = next_;
      for (const auto& [name, part] : out_.rules) follow(part, CharSet(next_[name]));
      changed = before != next_;
    }
  }

  const GbnfRules& rules_;
  const std::set<std::string>& regular_;
  const std::map<std::string, std::string>& names_;
  const std::set<std::string>& split_;
  StepBudget& budget_;
  std::deque<Lexeme> lexemes_;  // their places point into their nodes
  std::map<std::string, size_t> index_;
  std::vector<std::string> open_;
  std::map<std::string, Facts> facts_;
  std::map<std::string, CharSet> next_;
  TwoLevels out_;
};

}  // namespace

std::string lark_terminal(const GbnfNode& node, const std::map<std::string, std::string>& names) {
  switch (node.kind) {
    case Kind::chars: return "/" + node.chars.regex() + "/";
    case Kind::reference: return names.at(node.rule);
    case Kind::repeat: return "(" + lark_terminal(node.parts[0], names) + ")" + repetition(node);
    case Kind::choice: {
      std::string text;
      for (const GbnfNode& part : node.parts) text += (text.empty() ? "(" : " | ") + lark_terminal(part, names);
      return text + ")";
    }
    case Kind::sequence: {
      std::string text;
      for (size_t i = 0; i < node.parts.size(); ++i) {
        const bool chars = node.parts[i].kind == Kind::chars, joins = chars && i > 0 && node.parts[i - 1].kind == Kind::chars;
        if (joins) {  // /a/ /b/ as /ab/
          text.pop_back();
          text += node.parts[i].chars.regex() + "/";
        } else {
          text += (text.empty() ? "" : " ") + lark_terminal(node.parts[i], names);
        }
      }
      return node.parts.empty() ? "\"\"" : "(" + text + ")";
    }
  }
  return "";
}

TwoLevels two_levels(const GbnfRules& rules, const std::set<std::string>& regular,
                     const std::map<std::string, std::string>& names, StepBudget& budget) {
  std::set<std::string> split;
  for (;;) {
    Splitter attempt(rules, regular, names, split, budget);
    const std::set<std::string> uncertain = attempt.uncertain();
    if (uncertain.empty()) return std::move(attempt).take();
    split.insert(uncertain.begin(), uncertain.end());
  }
}

}  // namespace vitrine
