#pragma once
// The merges of byte-pair encoding: again and again the most frequent pair of neighbours becomes one symbol. Counts are kept
// up to date pair by pair, so a merge costs what it touches, not a pass over the corpus. Gage (1994); Sennrich et al.,
// arXiv:1508.07909.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <queue>
#include <vector>

#include "tokenizer/train_corpus.h"

namespace vitrine {

/// Pairs of symbols: their counts, and where they stand.
class PairTable {
 public:
  struct Pair {
    int32_t left, right;
    int64_t count = 0;
    uint32_t first = kNone, last = kNone;                                           // of its list of places
    enum class State : uint8_t { waiting, merged, barred } state = State::waiting;  // barred: the rules do not allow it
    bool fresh = false;                                                             // has won places since it was queued
  };
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  Pair& operator[](uint32_t pair) { return pairs_[pair]; }
  const Pair& operator[](uint32_t pair) const { return pairs_[pair]; }
  size_t size() const { return pairs_.size(); }

  /// The pair; `is_new` if it was not known before.
  uint32_t find_or_add(int32_t left, int32_t right, bool& is_new) {
    if (pairs_.size() * 2 >= slots_.size()) grow();
    size_t slot = home(left, right);
    for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
      const Pair& p = pairs_[slots_[slot] - 1];
      if (p.left == left && p.right == right) {
        is_new = false;
        return slots_[slot] - 1;
      }
    }
    pairs_.push_back({left, right});
    slots_[slot] = uint32_t(pairs_.size());
    is_new = true;
    return uint32_t(pairs_.size() - 1);
  }
  void add_place(uint32_t pair, uint32_t at) {
    uint32_t added = free_;
    if (added != kNone) {
      free_ = place(added).next;
    } else {
      added = n_places_++;
      if (added % kChunk == 0) places_.push_back(std::make_unique<Place[]>(kChunk));
    }
    place(added) = {at, kNone};
    Pair& p = pairs_[pair];
    (p.first == kNone ? p.first : place(p.last).next) = added;
    p.last = added;
  }
  /// Moves the places of a pair to `out`, in ascending order.
  void take_places(uint32_t pair, std::vector<uint32_t>& out) {
    out.clear();
    Pair& p = pairs_[pair];
    if (p.first == kNone) return;
    for (uint32_t i = p.first; i != kNone; i = place(i).next) out.push_back(place(i).at);
    place(p.last).next = free_;
    free_ = p.first;
    p.first = p.last = kNone;
    if (!std::is_sorted(out.begin(), out.end())) std::sort(out.begin(), out.end());
  }

 private:
  size_t home(int32_t left, int32_t right) const {
    const uint64_t key = (uint64_t(uint32_t(left)) << 32 | uint32_t(right)) * 0x9E3779B97F4A7C15;
    return size_t(key >> shift_);  // the upper bits depend on all of both ids
  }
  void grow() {
    slots_.assign(std::max<size_t>(1024, slots_.size() * 2), 0);
    shift_ = 64 - std::countr_zero(slots_.size());
    for (size_t i = 0; i < pairs_.size(); ++i) {
      size_t slot = home(pairs_[i].left, pairs_[i].right);
      while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = uint32_t(i + 1);
    }
  }
  struct Place {
    uint32_t at, next;
  };
  Place& place(uint32_t i) { return places_[i / kChunk][i % kChunk]; }
  static constexpr uint32_t kChunk = 8192;
  std::vector<Pair> pairs_;
  std::vector<uint32_t> slots_;  // a power of two; pair + 1, 0 for none
  int shift_ = 0;
  std::vector<std::unique_ptr<Place[]>> places_;  // in chunks: most of the memory, which a growing array would need twice
  uint32_t n_places_ = 0, free_ = kNone;
};

/// A pair as it waits to be merged.
struct QueuedPair {
  int64_t count;
  uint64_t order;  // by Rules::order
  uint32_t pair;
};

/// Merges until `rules` has enough or no pair is left that came at least `least_count` times. What the rules decide:
///   bool allows(left, right)                  whether the pair may be merged at all
///   uint64_t order(left, right)               of two equally frequent pairs the one with the lower order goes first,
///   bool before(l1, r1, l2, r2)               and this decides where orders are equal
///   bool enough()                             asked before each merge
///   int32_t accept(left, right, int64 count)  the symbol that the pair becomes, known or new; -1: it is dropped
/// A symbol that exists already may be given again (two ways to spell it): its pairs wait anew then.
template <class Rules>
void train_merges(TrainCorpus& corpus, Rules& rules, int64_t least_count) {
  using State = PairTable::Pair::State;
  PairTable pairs;
  const auto later = [&](const QueuedPair& a, const QueuedPair& b) {
    if (a.count != b.count) return a.count < b.count;
    if (a.order != b.order) return a.order > b.order;
    if (a.pair == b.pair) return false;
    const PairTable::Pair &p = pairs[a.pair], &q = pairs[b.pair];
    return rules.before(q.left, q.right, p.left, p.right);
  };
  std::vector<uint32_t> fresh;  // pairs that have won places
  const auto add = [&](int32_t left, int32_t right, size_t at, int64_t count) {
    bool is_new = false;
    const uint32_t pair = pairs.find_or_add(left, right, is_new);
    PairTable::Pair& p = pairs[pair];
    if (is_new && !rules.allows(left, right)) p.state = State::barred;
    if (p.state == State::barred) return;
    p.count += count;
    p.state = State::waiting;
    if (!p.fresh) {
      p.fresh = true;
      fresh.push_back(pair);
    }
    pairs.add_place(pair, uint32_t(at));
  };
  const auto take_away = [&](int32_t left, int32_t right, int64_t count) {
    bool is_new = false;
    pairs[pairs.find_or_add(left, right, is_new)].count -= count;
  };

  for (size_t at = 1; at + 1 < corpus.size(); ++at)
    if (corpus.symbol(at) >= 0 && corpus.symbol(at + 1) >= 0) add(corpus.symbol(at), corpus.symbol(at + 1), at, corpus.count(at));

  std::priority_queue<QueuedPair, std::vector<QueuedPair>, decltype(later)> queue(later);
  std::vector<uint32_t> places;
  for (;;) {
    for (const uint32_t pair : fresh) {
      PairTable::Pair& p = pairs[pair];
      p.fresh = false;
      if (p.count > 0) queue.push({p.count, rules.order(p.left, p.right), pair});
    }
    fresh.clear();
    if (rules.enough() || queue.empty()) return;
    QueuedPair top = queue.top();
    queue.pop();
    PairTable::Pair& best = pairs[top.pair];
    if (best.state != State::waiting) continue;
    if (top.count != best.count) {  // it has lost places since
      top.count = best.count;
      if (top.count > 0) queue.push(top);
      continue;
    }
    if (best.count < least_count) return;
    const int32_t left = best.left, right = best.right, symbol = rules.accept(left, right, best.count);
    best.state = State::merged;
    pairs.take_places(top.pair, places);
    if (symbol < 0) continue;
    for (const uint32_t at : places) {
      if (corpus.symbol(at) != left) continue;  // merged with another neighbour in the meantime
      const size_t second = corpus.next(at);
      if (corpus.symbol(second) != right) continue;
      const size_t before = corpus.previous(at), after = corpus.next(second);
      const int64_t count = corpus.count(at);
      if (corpus.symbol(before) >= 0) take_away(corpus.symbol(before), left, count);
      if (corpus.symbol(after) >= 0) take_away(right, corpus.symbol(after), count);
      corpus.merge(at, symbol);
      if (corpus.symbol(before) >= 0) add(corpus.symbol(before), symbol, before, count);
      if (corpus.symbol(after) >= 0) add(symbol, corpus.symbol(after), at, count);
    }
  }
}

}  // namespace vitrine
