#include "schedule/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace vitrine {
namespace {

constexpr int kMostLooks = 64;  // at kept sequences behind a branch, for one that can go back to it

}  // namespace

struct PrefixCache::Node {
  Node* parent = nullptr;
  std::vector<int32_t> tokens;                        // from the parent to here
  int64_t length = 0;                                 // from the root to here
  std::map<int32_t, std::unique_ptr<Node>> children;  // by their first token
  std::optional<CacheSequence> kept;
  uint64_t used = 0;  // its key in by_use_
};

int64_t alike(std::span<const int32_t> a, std::span<const int32_t> b) { return std::ranges::mismatch(a, b).in1 - a.begin(); }

PrefixCache::PrefixCache(int64_t long_from) : long_from_(long_from) {}

PrefixCache::~PrefixCache() {
  while (forget_one()) {  // from the leaves, for a tree may be deeper than the stack
  }
}

bool PrefixCache::serves(const CacheSequence& sequence, int64_t length, int64_t begun) const {
  return as_long(sequence.begun(), begun) && sequence.can_go_back(length);
}

// A node at or behind `from` that keeps a sequence which serves at `length`.
PrefixCache::Node* PrefixCache::server(Node& from, int64_t length, int64_t begun) const {
  std::vector<Node*> ahead = {&from};
  for (int looks = 0; !ahead.empty() && looks < kMostLooks;) {
    Node* const node = ahead.back();
    ahead.pop_back();
    if (node->kept) {
      if (serves(*node->kept, length, begun)) return node;
      ++looks;
    }
    for (const auto& [first, child] : node->children) ahead.push_back(child.get());
  }
  return nullptr;
}

PrefixCache::Found PrefixCache::find(std::span<const int32_t> tokens, int64_t begun, const Kind& kind) {
  Found found;
  const auto root = roots_.find(kind);
  if (root == roots_.end()) return found;
  std::vector<std::pair<Node*, int64_t>> path;  // nodes behind which to look, and the length wanted of them
  Node* node = root->second.get();
  for (;;) {
    const auto rest = tokens.subspan(static_cast<size_t>(node->length));
    if (node->parent != nullptr) path.emplace_back(node, node->length);
    const auto child = rest.empty() ? node->children.end() : node->children.find(rest.front());
    if (child == node->children.end()) break;
    const int64_t more = alike(rest, child->second->tokens);
    found.alike = node->length + more;
    if (more < std::ssize(child->second->tokens)) {
      path.emplace_back(child->second.get(), found.alike);
      break;
    }
    node = child->second.get();
  }
  for (; !path.empty(); path.pop_back()) {
    const auto& [from, length] = path.back();
    Node* const there = server(*from, length, begun);
    if (there == nullptr) continue;
    found.length = length;
    found.sequence = there->kept->beginning(length);
    use(*there);
    break;
  }
  return found;
}

void PrefixCache::keep(std::span<const int32_t> tokens, CacheSequence sequence, const Kind& kind) {
  VITRINE_CHECK(std::ssize(tokens) == sequence.length(), "a kept sequence has its text's length");
  if (tokens.empty()) return;
  Node& node = place(tokens, kind);
  const int64_t begun = sequence.begun();
  if (Node* const there = server(node, node.length, begun)) {
    use(*there);
    prune(&node);
    return;
  }
  if (node.kept) drop(node);  // of the other kind
  node.kept = std::move(sequence);
  use(node);
  for (Node* above = node.parent; above != nullptr;) {
    Node* const next = above->parent;
    if (above->kept && serves(*node.kept, above->length, above->kept->begun())) {
      drop(*above);
      if (above->children.size() == 1) prune(above);  // its child takes its tokens
    }
    above = next;
  }
}

int64_t PrefixCache::forget(std::span<const int32_t> tokens, const Kind& kind) {
  const auto root = roots_.find(kind);
  if (root == roots_.end()) return 0;
  Node* kept = nullptr;
  for (Node* node = root->second.get(); node != nullptr;) {
    if (node->kept) kept = node;
    const auto rest = tokens.subspan(static_cast<size_t>(node->length));
    const auto child = rest.empty() ? node->children.end() : node->children.find(rest.front());
    const bool whole = child != node->children.end() && alike(rest, child->second->tokens) == std::ssize(child->second->tokens);
    node = whole ? child->second.get() : nullptr;
  }
  if (kept == nullptr) return 0;
  const int64_t length = kept->length;
  drop(*kept);
  prune(kept);
  return length;
}

bool PrefixCache::forget_one() {
  if (by_use_.empty()) return false;
  Node* const node = by_use_.begin()->second;
  drop(*node);
  prune(node);
  ++forgotten_;
  return true;
}

// The node that these tokens lead to, made if it is not there.
PrefixCache::Node& PrefixCache::place(std::span<const int32_t> tokens, const Kind& kind) {
  std::unique_ptr<Node>& root = roots_[kind];
  if (root == nullptr) root = std::make_unique<Node>();
  Node* node = root.get();
  while (node->length < std::ssize(tokens)) {
    const auto rest = tokens.subspan(static_cast<size_t>(node->length));
    const auto child = node->children.find(rest.front());
    if (child == node->children.end()) {
      auto made = std::make_unique<Node>();
      made->parent = node;
      made->tokens.assign(rest.begin(), rest.end());
      made->length = std::ssize(tokens);
      tokens_ += std::ssize(rest);
      node = (node->children[rest.front()] = std::move(made)).get();
      break;
    }
    Node& next = *child->second;
    const int64_t more = alike(rest, next.tokens);
    if (more < std::ssize(next.tokens)) split(next, static_cast<size_t>(more));
    node = node->children.at(rest.front()).get();
  }
  return *node;
}

// A node in front of it for the first `at` of its tokens.
void PrefixCache::split(Node& node, size_t at) {
  auto front = std::make_unique<Node>();
  std::unique_ptr<Node>& held = node.parent->children.at(node.tokens.front());
  front->parent = node.parent;
  front->tokens.assign(node.tokens.begin(), node.tokens.begin() + static_cast<std::ptrdiff_t>(at));
  front->length = node.length - std::ssize(node.tokens) + static_cast<int64_t>(at);
  std::vector<int32_t> rest(node.tokens.begin() + static_cast<std::ptrdiff_t>(at), node.tokens.end());
  node.tokens = std::move(rest);
  node.parent = front.get();
  front->children[node.tokens.front()] = std::move(held);
  held = std::move(front);
}

void PrefixCache::use(Node& node) {
  if (node.used != 0) by_use_.erase(node.used);
  node.used = ++clock_;
  by_use_[node.used] = &node;
}

void PrefixCache::drop(Node& node) {
  by_use_.erase(std::exchange(node.used, 0));
  node.kept.reset();
}

// Takes nodes away that keep nothing and lead to nothing, and joins one that keeps nothing with its only child.
void PrefixCache::prune(Node* node) {
  while (node->parent != nullptr && !node->kept && node->children.empty()) {
    Node* const parent = node->parent;
    tokens_ -= std::ssize(node->tokens);
    parent->children.erase(node->tokens.front());
    node = parent;
  }
  if (node->parent == nullptr) {
    if (node->children.empty()) std::erase_if(roots_, [&](const auto& root) { return root.second.get() == node; });
    return;
  }
  if (node->kept || node->children.size() != 1) return;
  std::unique_ptr<Node> child = std::move(node->children.begin()->second);
  child->tokens.insert(child->tokens.begin(), node->tokens.begin(), node->tokens.end());
  child->parent = node->parent;
  std::unique_ptr<Node>& held = node->parent->children.at(node->tokens.front());
  held = std::move(child);
}

}  // namespace vitrine
