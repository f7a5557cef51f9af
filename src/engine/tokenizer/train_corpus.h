#pragma once
// The words of a corpus as one array in which pairs of neighbors are merged.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vitrine {

/// Symbols of all words, one after the other, with an edge in front of, between and behind them. A merged pair keeps the slots
/// of both: its symbol is in the first, and the second and the last hold minus its length, so that neighbors are found
/// from both sides without links.
class TrainCorpus {
 public:
  static constexpr int32_t kEdge = -1;
  static constexpr size_t kMostSlots = size_t{1} << 31;

  /// Begins a word (or a part of one) that came `count` times; counts must not rise from word to word.
  void begin_word(uint64_t count);
  void add_symbol(int32_t symbol) { slots_.push_back(symbol); }
  /// To be called after the last word.
  void finish();
  void reserve(size_t slots) { slots_.reserve(slots); }

  size_t size() const { return slots_.size(); }
  int32_t symbol(size_t at) const { return slots_[at]; }  // negative: an edge, or inside a merged pair
  size_t next(size_t at) const {
    const int32_t after = slots_[at + 1];
    return after >= kEdge ? at + 1 : at + size_t(-int64_t{after});
  }
  size_t previous(size_t at) const {
    const int32_t before = slots_[at - 1];
    return before >= kEdge ? at - 1 : at - size_t(-int64_t{before});
  }
  /// How often the word at a slot came.
  int64_t count(size_t at) const {
    size_t run = run_of_block_[at / kBlock];
    while (run + 1 < runs_.size() && runs_[run + 1].begin <= at) ++run;
    return int64_t(runs_[run].count);
  }
  /// The symbol at `at` and the one at next(at) become `symbol`.
  void merge(size_t at, int32_t symbol) {
    const size_t second = next(at), end = next(second);
    slots_[second] = kInside;
    slots_[at + 1] = slots_[end - 1] = -int32_t(end - at);
    slots_[at] = symbol;
  }

 private:
  static constexpr size_t kBlock = 64;
  static constexpr int32_t kInside = -2;
  struct Run {
    uint32_t begin;  // of the words that came `count` times
    uint64_t count;
  };
  std::vector<int32_t> slots_;
  std::vector<Run> runs_;
  std::vector<uint32_t> run_of_block_;  // at the first slot of each block
};

}  // namespace vitrine
