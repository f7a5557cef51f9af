#pragma once
// Which of a set of strings begins at a place in a text. For added tokens, user-defined pieces, and unigram's lattice.
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace vitrine {

class Trie {
 public:
  struct Match {
    size_t size = 0;  // bytes; 0: nothing matches
    int32_t value = -1;
  };

  Trie() = default;
  /// Empty strings are left out; of equal strings the largest value counts.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> strings);

  bool empty() const { return nodes_.empty(); }
  /// The first place from `pos` on whose byte some string begins with; text.size(): there is none. The trie is not empty.
  size_t next_start(std::string_view text, size_t pos) const;
  /// The longest string that begins at text[pos].
  Match longest(std::string_view text, size_t pos) const;
  /// Calls visit(size, value) for every string that begins at text[pos], shortest first.
  template <class Visit>
  void each(std::string_view text, size_t pos, Visit&& visit) const {
    if (nodes_.empty()) return;
    int32_t node = 0;
    for (size_t i = pos; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node < 0) return;
      if (nodes_[size_t(node)].value >= 0) visit(i - pos + 1, nodes_[size_t(node)].value);
    }
  }
  /// Whether a string, wherever it begins, lies across the byte `at` of a source. The text was made of that source:
  /// range(begin, end).begin and .end are the bytes of it behind [begin, end), and they never decrease.
  template <class Range>
  bool across(std::string_view text, size_t at, Range&& range) const {
    bool found = false;
    for (size_t pos = 0; pos < text.size() && !found && !empty() && range(pos, pos + 1).begin < at; ++pos)
      each(text, pos, [&](size_t size, int32_t) { found = found || range(pos, pos + size).end > at; });
    return found;
  }

 private:
  struct Node {
    uint32_t first_edge = 0, edge_count = 0;
    int32_t value = -1;
  };
  struct Edge {
    unsigned char byte;
    int32_t node;
  };
  int32_t child(int32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;   // those of one node lie together, in the order of their bytes
  int32_t root_[256] = {};    // the root's children, looked up directly
  int only_first_byte_ = -1;  // with which all strings begin; -1: with several
};

}  // namespace vitrine
