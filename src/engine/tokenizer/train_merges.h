#pragma once
// The merges of byte-pair encoding: again and again the most frequent pair of neighbors becomes one symbol. Counts are kept
// up to date pair by pair, so a merge costs what it touches, not a pass over the corpus. Gage (1994); Sennrich et al.,
// arXiv:1508.07909.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <vector>

#include "tokenizer/train_corpus.h"
#include "tokenizer/train_pairs.h"

namespace vitrine {

/// Merges until `rules` has enough or no pair is left that came at least `least_count` times. What the rules decide:
///   bool allows(left, right)                  whether the pair may be merged at all
///   uint64_t order(left, right)               of two equally frequent pairs the one with the lower order goes first,
///   bool before(l1, r1, l2, r2)               and this decides where orders are equal
///   bool enough()                             asked before each merge
///   int32_t accept(left, right, int64 count)  the symbol that the pair becomes; -1: it is dropped
/// A new symbol is above all that were there before. A symbol that exists already may be given again (two ways to spell it):
/// its pairs wait anew then.
///
/// Most pairs are too rare to be merged ever, so only those that came at least `bound_` times have a place in the table. Of
/// the others only sums of counts are kept, many pairs to a sum. When no pair in the table is left to merge, the bound is
/// lowered and a pass over the corpus finds the pairs it lets in.
template <class Rules>
class MergeTrainer {
 public:
  MergeTrainer(TrainCorpus& corpus, Rules& rules, int64_t least_count)
      : corpus_(corpus), rules_(rules), least_(std::max<int64_t>(1, least_count)), rare_(corpus.size()), queue_(Later{this}) {}

  void run() {
    each_pair([&](int32_t left, int32_t right, size_t at) {
      newest_ = std::max({newest_, left, right});
      if (rules_.allows(left, right)) rare_.sum(left, right) += corpus_.count(at);
    });
    while (lower_bound()) {
      for (;;) {
        if (rules_.enough()) return;
        const uint32_t pair = most_frequent();
        if (pair == PairTable::kNone) break;
        merge(pair);
      }
    }
  }

 private:
  using Pair = PairTable::Pair;
  struct Queued {
    int64_t count;
    uint64_t order;  // by Rules::order
    uint32_t pair;
  };
  struct Later {
    const MergeTrainer* trainer;
    bool operator()(const Queued& a, const Queued& b) const {
      if (a.count != b.count) return a.count < b.count;
      if (a.order != b.order) return a.order > b.order;
      if (a.pair == b.pair) return false;
      const Pair &p = trainer->pairs_[a.pair], &q = trainer->pairs_[b.pair];
      return trainer->rules_.before(q.left, q.right, p.left, p.right);
    }
  };
  static constexpr int64_t kStep = 4;  // from one bound to the next
  static constexpr int32_t kAnySymbol = -1;

  template <class Visit>
  void each_pair(Visit&& visit) const {
    for (size_t at = 1; at + 1 < corpus_.size(); at = corpus_.next(at)) {
      if (corpus_.symbol(at) < 0) continue;
      const int32_t right = corpus_.symbol(corpus_.next(at));
      if (right >= 0) visit(corpus_.symbol(at), right, at);
    }
  }

  /// Lets rarer pairs into the table; false: there are none that might be merged.
  bool lower_bound() {
    int64_t most = rare_.largest();
    const auto each_waiting = [&](auto visit) {  // of those in the table: they were merged once, and have come again
      pairs_.each([&](uint32_t pair) {
        if (pairs_[pair].waits) visit(pair);
      });
    };
    each_waiting([&](uint32_t pair) { most = std::max(most, pairs_[pair].count); });
    most = std::min(most, bound_ - 1);
    if (most < least_) return false;
    bound_ = std::max(least_, most / kStep);
    each_waiting([&](uint32_t pair) {
      if (pairs_[pair].count >= bound_) queue(pair);
    });
    let_in(kAnySymbol);
    return true;
  }

  /// Finds the pairs outside the table, with `symbol`, that came `bound_` times or more.
  void let_in(int32_t symbol) {
    each_pair([&](int32_t left, int32_t right, size_t at) {
      if (symbol != kAnySymbol && left != symbol && right != symbol) return;
      if (rare_.sum(left, right) < bound_) return;
      const uint32_t pair = pairs_.find(left, right);
      if (pair == PairTable::kNone ? rules_.allows(left, right) : pairs_[pair].is_new) add(left, right, at, corpus_.count(at));
    });
    for (const uint32_t pair : fresh_) rare_.sum(pairs_[pair].left, pairs_[pair].right) -= pairs_[pair].count;
    queue_fresh();
  }

  /// Queues the pairs that have won places; those that are new and too rare go out of the table.
  void queue_fresh() {
    for (const uint32_t pair : fresh_) {
      Pair& p = pairs_[pair];
      if (p.count >= bound_)
        queue(pair);
      else if (p.is_new)
        put_out(pair);
      p.fresh = p.is_new = false;
    }
    fresh_.clear();
  }
  void put_out(uint32_t pair) {
    rare_.sum(pairs_[pair].left, pairs_[pair].right) += pairs_[pair].count;
    pairs_.remove(pair);
  }
  void queue(uint32_t pair) {
    Pair& p = pairs_[pair];
    ++p.queued;
    queue_.push({p.count, rules_.order(p.left, p.right), pair});
  }

  /// The pair to merge next; kNone: no pair in the table came `bound_` times.
  uint32_t most_frequent() {
    while (!queue_.empty()) {
      const Queued top = queue_.top();
      queue_.pop();
      Pair& p = pairs_[top.pair];
      --p.queued;
      if (!p.waits) continue;
      if (p.count == top.count) return top.pair;
      if (p.count >= bound_)  // it has lost places since
        queue(top.pair);
      else if (p.queued == 0 && !p.was_merged)
        put_out(top.pair);
    }
    return PairTable::kNone;
  }

  void merge(uint32_t pair) {
    Pair& p = pairs_[pair];
    const int32_t left = p.left, right = p.right, symbol = rules_.accept(left, right, p.count);
    p.waits = false;
    p.was_merged = true;
    pairs_.take_places(pair, places_);
    if (symbol < 0) return;
    for (const uint32_t at : places_) {
      if (corpus_.symbol(at) != left) continue;  // merged with another neighbor in the meantime
      const size_t second = corpus_.next(at);
      if (corpus_.symbol(second) != right) continue;
      const size_t before = corpus_.previous(at), after = corpus_.next(second);
      const int64_t count = corpus_.count(at);
      if (corpus_.symbol(before) >= 0) take_away(corpus_.symbol(before), left, count);
      if (corpus_.symbol(after) >= 0) take_away(right, corpus_.symbol(after), count);
      corpus_.merge(at, symbol);
      if (corpus_.symbol(before) >= 0) add(corpus_.symbol(before), symbol, before, count);
      if (corpus_.symbol(after) >= 0) add(symbol, corpus_.symbol(after), at, count);
    }
    if (symbol > newest_)
      newest_ = symbol;
    else
      complete(symbol);
    queue_fresh();
  }
  /// The symbol had pairs before: those that are new in the table may have been outside it, with places that are not known here.
  void complete(int32_t symbol) {
    bool missing = false;
    std::erase_if(fresh_, [&](uint32_t pair) {
      const Pair& p = pairs_[pair];
      const int32_t left = p.left, right = p.right;
      if (!p.is_new || rare_.sum(left, right) == 0) return false;  // nothing of it was outside
      put_out(pair);
      missing = missing || rare_.sum(left, right) >= bound_;
      return true;
    });
    if (!missing) return;
    queue_fresh();  // so that all that is fresh has just been let in
    let_in(symbol);
  }

  void add(int32_t left, int32_t right, size_t at, int64_t count) {
    uint32_t pair = pairs_.find(left, right);
    if (pair == PairTable::kNone) {
      if (!rules_.allows(left, right)) return;
      pair = pairs_.add(left, right);
    }
    Pair& p = pairs_[pair];
    p.count += count;
    p.waits = true;
    if (!p.fresh) {
      p.fresh = true;
      fresh_.push_back(pair);
    }
    pairs_.add_place(pair, uint32_t(at));
  }
  void take_away(int32_t left, int32_t right, int64_t count) {
    const uint32_t pair = pairs_.find(left, right);
    if (pair != PairTable::kNone)
      pairs_[pair].count -= count;
    else if (rules_.allows(left, right))
      rare_.sum(left, right) -= count;
  }

  TrainCorpus& corpus_;
  Rules& rules_;
  const int64_t least_;
  int64_t bound_ = std::numeric_limits<int64_t>::max();
  int32_t newest_ = -1;  // symbol
  PairTable pairs_;
  RarePairs rare_;
  std::priority_queue<Queued, std::vector<Queued>, Later> queue_;
  std::vector<uint32_t> fresh_;   // pairs that have won places since they were queued
  std::vector<uint32_t> places_;  // of the pair that is being merged
};

}  // namespace vitrine
