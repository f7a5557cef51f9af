#include "tokenizer/trie.h"

#include <algorithm>

namespace vitrine {

Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> strings) {
  std::sort(strings.begin(), strings.end());
  std::erase_if(strings, [](const auto& s) { return s.first.empty(); });
  if (strings.empty()) return;
  // Breadth first: a node is a range of the sorted strings that share their first `depth` bytes.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, strings.size(), 0}};
  nodes_.emplace_back();
  for (size_t n = 0; n < ranges.size(); ++n) {
    auto [begin, end, depth] = ranges[n];
    while (begin < end && strings[begin].first.size() == depth) nodes_[n].value = strings[begin++].second;
    nodes_[n].first_edge = uint32_t(edges_.size());
    while (begin < end) {
      const char byte = strings[begin].first[depth];
      size_t next = begin;
      while (next < end && strings[next].first[depth] == byte) ++next;
      edges_.push_back({static_cast<unsigned char>(byte), int32_t(nodes_.size())});
      nodes_.emplace_back();
      ranges.push_back({begin, next, depth + 1});
      begin = next;
    }
    nodes_[n].edge_count = uint32_t(edges_.size()) - nodes_[n].first_edge;
  }
  std::fill(std::begin(root_), std::end(root_), -1);
  for (uint32_t e = 0; e < nodes_[0].edge_count; ++e) root_[edges_[e].byte] = edges_[e].node;
  if (nodes_[0].edge_count == 1) only_first_byte_ = edges_[0].byte;
}

size_t Trie::next_start(std::string_view text, size_t pos) const {
  if (only_first_byte_ >= 0) return std::min(text.find(char(only_first_byte_), pos), text.size());
  while (pos < text.size() && root_[static_cast<unsigned char>(text[pos])] < 0) ++pos;
  return pos;
}

int32_t Trie::child(int32_t node, unsigned char byte) const {
  if (node == 0) return root_[byte];
  const Node& n = nodes_[size_t(node)];
  const auto begin = edges_.begin() + n.first_edge, end = begin + n.edge_count;
  const auto it = std::lower_bound(begin, end, byte, [](const Edge& e, unsigned char b) { return e.byte < b; });
  return it != end && it->byte == byte ? it->node : -1;
}

Trie::Match Trie::longest(std::string_view text, size_t pos) const {
  Match best;
  each(text, pos, [&](size_t size, int32_t value) { best = {size, value}; });
  return best;
}

}  // namespace vitrine
