#pragma once
// Byte-pair merging over a linked list of symbols with a heap of candidate pairs: O(n log n) for any text, one megabyte
// of a single letter included. Sennrich et al., arXiv:1508.07909; the order of merges is the caller's.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace vitrine {

struct BpeSymbol {
  int32_t id;            // -1: not in the vocabulary, or never to be merged
  uint32_t begin, size;  // its bytes in the word
  int32_t prev, next;    // neighbors, -1 at the ends
  bool frozen = false;   // never merged
};

/// What two neighbors would become. The lowest order merges first; equal orders from left to right.
struct BpeJoin {
  uint32_t order;
  int32_t id;  // -1: they do not merge
};

struct BpeCandidate {
  uint32_t order;
  int32_t left;
  uint32_t size;  // of both sides; differs from the list's when one side has changed since
  int32_t id;
};

/// Merges until no pair is left. `join(left, right)` gives a BpeJoin for two symbols. On return the surviving symbols are
/// at the front of `symbols`, in order; prev and next are not meaningful any more.
template <class Join>
void bpe_merge(std::vector<BpeSymbol>& symbols, std::vector<BpeCandidate>& heap, const Join& join) {
  const auto later = [](const BpeCandidate& a, const BpeCandidate& b) {
    return a.order != b.order ? a.order > b.order : a.left > b.left;
  };
  heap.clear();
  constexpr size_t kShort = 24;  // below this, scanning beats the heap
  const auto propose = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const BpeSymbol &l = symbols[size_t(left)], &r = symbols[size_t(right)];
    if (l.frozen || r.frozen) return;
    const BpeJoin j = join(l, r);
    if (j.id < 0) return;
    heap.push_back({j.order, left, l.size + r.size, j.id});
    if (symbols.size() > kShort) std::push_heap(heap.begin(), heap.end(), later);
  };
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].prev = int32_t(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? int32_t(i) + 1 : -1;
  }
  for (size_t i = 0; i + 1 < symbols.size(); ++i) propose(int32_t(i), int32_t(i) + 1);
  while (!heap.empty()) {
    if (symbols.size() > kShort) {
      std::pop_heap(heap.begin(), heap.end(), later);
    } else {
      std::iter_swap(std::max_element(heap.begin(), heap.end(), later), heap.end() - 1);
    }
    const BpeCandidate top = heap.back();
    heap.pop_back();
    BpeSymbol& left = symbols[size_t(top.left)];
    if (left.size == 0 || left.next < 0) continue;
    BpeSymbol& right = symbols[size_t(left.next)];
    if (left.size + right.size != top.size) continue;
    left.id = top.id;
    left.size = top.size;
    left.next = right.next;
    if (right.next >= 0) symbols[size_t(right.next)].prev = top.left;
    right.size = 0;
    propose(left.prev, top.left);
    propose(top.left, left.next);
  }
  std::erase_if(symbols, [](const BpeSymbol& s) { return s.size == 0; });
}

/// A token of a word, with its bytes counted from the word's start.
struct WordToken {
  int32_t id;
  uint32_t begin, end;
};

/// The tokens of words already seen during one call of encode(). Texts repeat their words, merging need not.
class WordCache {
 public:
  /// To be called first: a short text gets no cache, a long one a larger one.
  void prepare(size_t text_bytes);
  /// The tokens of a word; empty: not seen.
  std::span<const WordToken> find(std::string_view word) const;
  /// Keeps a copy of the tokens and the view of the word, which must stay valid.
  void insert(std::string_view word, std::span<const WordToken> tokens);

 private:
  struct Entry {
    std::string_view word;
    uint32_t first = 0, count = 0;  // in tokens_
  };
  static constexpr size_t kLongestWord = 64, kMostSlots = size_t{1} << 16, kMostTokens = size_t{1} << 20;
  std::vector<Entry> slots_;  // a power of two; a newer word replaces an older one
  std::vector<WordToken> tokens_;
};

/// Where a long text may be cut without changing the merges: in front of `marker` ("▁", or a space), unless the
/// character before it occurs together with it inside a piece. Found from the pieces themselves.
class SafeCuts {
 public:
  explicit SafeCuts(std::string_view marker = {}) : marker_(marker) {}
  /// Takes note of a piece that merging can produce.
  void add_piece(std::string_view piece);
  /// The end of the word that begins at text[begin].
  size_t word_end(std::string_view text, size_t begin) const;

 private:
  static constexpr size_t kMostJoined = 1024;  // more: such a vocabulary does not treat the marker as a word's start
  std::string_view marker_;                    // empty: never cut
  std::vector<uint32_t> joined_before_;        // sorted characters that occur directly before the marker in some piece
};

/// What stands for a space in pieces: "▁".
inline constexpr std::string_view kWordMarker = "\xE2\x96\x81";

/// Where a text may be cut without changing the merges, told from two neighboring bytes: between two characters of which one is
/// an ASCII character with a piece of its own, and which no piece holds side by side. The text is as the user wrote it, with
/// spaces that become word markers.
class PairCuts {
 public:
  /// known[c] tells whether the ASCII character c is a piece; for the space, whether the marker is one.
  explicit PairCuts(const std::array<bool, 128>& known);
  /// Takes note of a piece that merging can produce.
  void add_piece(std::string_view piece);
  bool between(char left, char right) const { return cut_[index(left, right)]; }
  /// Calls visit(begin, end) for the parts of `text` between all cuts.
  template <class Visit>
  void each_word(std::string_view text, const Visit& visit) const {
    // The cuts of 64 places first, as bits: whether one byte is a cut cannot be predicted.
    constexpr size_t kBlock = 64;
    size_t begin = 0;
    for (size_t first = 1; first < text.size(); first += kBlock) {
      const size_t count = std::min(kBlock, text.size() - first);
      const char *const left = text.data() + first - 1, *const right = left + 1;
      uint64_t cuts = 0;
      for (size_t i = 0; i < count; ++i) cuts |= uint64_t{cut_[index(left[i], right[i])]} << i;
      for (; cuts != 0; cuts &= cuts - 1) {
        const size_t end = first + size_t(std::countr_zero(cuts));
        visit(begin, end);
        begin = end;
      }
    }
    if (begin < text.size()) visit(begin, text.size());
  }

 private:
  static size_t index(char left, char right) {
    return size_t{static_cast<unsigned char>(left)} << 8 | static_cast<unsigned char>(right);
  }
  std::vector<uint8_t> cut_;
};

}  // namespace vitrine
