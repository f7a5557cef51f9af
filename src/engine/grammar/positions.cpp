#include "grammar/positions.h"

#include <algorithm>
#include <utility>

namespace vitrine {
namespace {

constexpr size_t kMostPositions = 4000;

/// A part between two points of the text.
struct Span {
  std::vector<uint32_t> first, last;
  bool nullable = false;
};

void append(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) { to.insert(to.end(), from.begin(), from.end()); }

class PositionBuilder {
 public:
  PositionBuilder(const GbnfRules& rules, StepBudget& budget) : rules_(rules), budget_(budget) {}

  std::optional<Positions> build(const GbnfNode& node) {
    Span whole = span(node);
    if (too_many_) return {};
    out_.first = std::move(whole.first);
    out_.last = std::move(whole.last);
    out_.nullable = whole.nullable;
    return std::move(out_);
  }

 private:
  void connect(const std::vector<uint32_t>& from, const std::vector<uint32_t>& to) {
    budget_.spend(from.size() * to.size());
    for (const uint32_t p : from) append(out_.after[p], to);
  }

  Span joined(Span a, Span b) {
    connect(a.last, b.first);
    if (a.nullable) append(a.first, b.first);
    if (b.nullable) append(b.last, a.last);
    return {std::move(a.first), std::move(b.last), a.nullable && b.nullable};
  }

  Span span(const GbnfNode& node) {
    budget_.spend();
    if (too_many_) return {.first = {}, .last = {}, .nullable = true};
    Span whole;
    switch (node.kind) {
      case GbnfNode::Kind::chars:
        too_many_ = out_.chars.size() == kMostPositions;
        whole.first = whole.last = {static_cast<uint32_t>(out_.chars.size())};
        out_.chars.push_back(&node.chars);
        out_.after.emplace_back();
        return whole;
      case GbnfNode::Kind::sequence:
        whole.nullable = true;
        for (const GbnfNode& part : node.parts) whole = joined(std::move(whole), span(part));
        return whole;
      case GbnfNode::Kind::choice:
        for (const GbnfNode& part : node.parts) {
          const Span one = span(part);
          append(whole.first, one.first);
          append(whole.last, one.last);
          whole.nullable = whole.nullable || one.nullable;
        }
        return whole;
      case GbnfNode::Kind::repeat: return repeated(node);
      case GbnfNode::Kind::reference: return span(rules_.at(node.rule));
    }
    return whole;
  }

  Span repeated(const GbnfNode& node) {
    Span whole{.first = {}, .last = {}, .nullable = true};
    const bool endless = node.most == GbnfNode::kNoLimit;
    const uint32_t fixed = endless && node.least > 0 ? node.least - 1 : node.least;
    for (uint32_t i = 0; i < fixed && !too_many_; ++i) whole = joined(std::move(whole), span(node.parts[0]));
    if (endless) {
      Span loop = span(node.parts[0]);
      connect(loop.last, loop.first);
      loop.nullable = loop.nullable || node.least == 0;
      return joined(std::move(whole), std::move(loop));
    }
    // (x (x (x)?)?)?: each optional one follows the one before it alone.
    Span chain = whole;
    for (uint32_t i = node.least; i < node.most && !too_many_; ++i) {
      const Span one = span(node.parts[0]);
      connect(chain.last, one.first);
      if (chain.nullable) append(whole.first, one.first);
      append(whole.last, one.last);
      if (!one.nullable) chain.last.clear();
      append(chain.last, one.last);
      chain.nullable = chain.nullable && one.nullable;
    }
    return whole;
  }

  const GbnfRules& rules_;
  StepBudget& budget_;
  Positions out_;
  bool too_many_ = false;
};

}  // namespace

CharSet Positions::first_chars() const {
  CharSet all;
  for (const uint32_t p : first) all.add(*chars[p]);
  return all;
}

std::optional<Positions> positions(const GbnfNode& node, const GbnfRules& rules, StepBudget& budget) {
  return PositionBuilder(rules, budget).build(node);
}

bool may_extend(const Positions& a, const Positions& b, const CharSet& next, StepBudget& budget) {
  std::vector<bool> seen(a.chars.size() * b.chars.size()), ends(a.chars.size());
  budget.spend(seen.size() / 64);
  for (const uint32_t p : a.last) ends[p] = true;
  const auto meet = [&](const CharSet& one, const CharSet& other) {
    budget.spend(one.size() + other.size());
    return one.meets(other);
  };
  std::vector<std::pair<uint32_t, uint32_t>> open;  // places that both texts may have reached
  const auto reach = [&](const std::vector<uint32_t>& in_a, const std::vector<uint32_t>& in_b) {
    budget.spend(in_a.size() * in_b.size());
    for (const uint32_t p : in_a)
      for (const uint32_t q : in_b) {
        if (seen[p * b.chars.size() + q] || !meet(*a.chars[p], *b.chars[q])) continue;
        seen[p * b.chars.size() + q] = true;
        open.emplace_back(p, q);
      }
  };
  reach(a.first, b.first);
  while (!open.empty()) {
    const auto [p, q] = open.back();
    open.pop_back();
    if (ends[p] && std::ranges::any_of(b.after[q], [&](uint32_t r) { return meet(*b.chars[r], next); })) return true;
    reach(a.after[p], b.after[q]);
  }
  return false;
}

}  // namespace vitrine
