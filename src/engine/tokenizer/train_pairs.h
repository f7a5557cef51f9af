#pragma once
// The pairs of neighboring symbols that wait to be merged: how often each came, and where.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace vitrine {

/// A hash whose upper bits depend on all of both ids.
inline uint64_t pair_hash(int32_t left, int32_t right) {
  return (uint64_t(uint32_t(left)) << 32 | uint32_t(right)) * 0x9E3779B97F4A7C15;
}

/// Pairs with their counts and places.
class PairTable {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  struct Pair {
    int32_t left, right;
    int64_t count = 0;
    uint32_t first = kNone, last = kNone;  // of its list of places
    uint32_t queued = 0;                   // entries of the queue that name it
    bool waits = false;                    // to be merged
    bool was_merged = false;
    bool fresh = false;  // has won places since it was queued
    bool is_new = true;  // has not been queued yet
  };

  Pair& operator[](uint32_t pair) { return pairs_[pair]; }
  const Pair& operator[](uint32_t pair) const { return pairs_[pair]; }
  template <class Visit>
  void each(Visit&& visit) const {
    for (const uint32_t slot : slots_)
      if (slot != 0) visit(slot - 1);
  }

  /// kNone: it is not in the table.
  uint32_t find(int32_t left, int32_t right) const {
    if (slots_.empty()) return kNone;
    for (size_t slot = home(left, right); slots_[slot] != 0; slot = after(slot)) {
      const Pair& p = pairs_[slots_[slot] - 1];
      if (p.left == left && p.right == right) return slots_[slot] - 1;
    }
    return kNone;
  }
  /// Of a pair that is not in the table.
  uint32_t add(int32_t left, int32_t right) {
    if (used_ * 2 >= slots_.size()) grow();
    uint32_t pair = uint32_t(pairs_.size());
    if (unused_.empty()) {
      pairs_.emplace_back();
    } else {
      pair = unused_.back();
      unused_.pop_back();
    }
    pairs_[pair] = {.left = left, .right = right};
    ++used_;
    insert(pair);
    return pair;
  }
  void remove(uint32_t pair) {
    give_back_places(pairs_[pair]);
    size_t hole = home(pairs_[pair].left, pairs_[pair].right);
    while (slots_[hole] != pair + 1) hole = after(hole);
    // What follows moves up, unless its home lies behind the hole.
    for (size_t slot = after(hole); slots_[slot] != 0; slot = after(slot)) {
      const Pair& p = pairs_[slots_[slot] - 1];
      const size_t mask = slots_.size() - 1;
      if (((slot - home(p.left, p.right)) & mask) < ((slot - hole) & mask)) continue;
      slots_[hole] = slots_[slot];
      hole = slot;
    }
    slots_[hole] = 0;
    unused_.push_back(pair);
    --used_;
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
    for (uint32_t i = pairs_[pair].first; i != kNone; i = place(i).next) out.push_back(place(i).at);
    give_back_places(pairs_[pair]);
    if (!std::is_sorted(out.begin(), out.end())) std::sort(out.begin(), out.end());
  }

 private:
  struct Place {
    uint32_t at, next;
  };
  static constexpr uint32_t kChunk = 8192;

  Place& place(uint32_t i) { return places_[i / kChunk][i % kChunk]; }
  void give_back_places(Pair& p) {
    if (p.first == kNone) return;
    place(p.last).next = free_;
    free_ = p.first;
    p.first = p.last = kNone;
  }
  size_t home(int32_t left, int32_t right) const { return size_t(pair_hash(left, right) >> shift_); }
  size_t after(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  void insert(uint32_t pair) {
    size_t slot = home(pairs_[pair].left, pairs_[pair].right);
    while (slots_[slot] != 0) slot = after(slot);
    slots_[slot] = pair + 1;
  }
  void grow() {
    const std::vector<uint32_t> before = std::move(slots_);
    slots_.assign(std::max<size_t>(1024, before.size() * 2), 0);
    shift_ = 64 - std::countr_zero(slots_.size());
    for (const uint32_t slot : before)
      if (slot != 0) insert(slot - 1);
  }

  std::deque<Pair> pairs_;
  std::vector<uint32_t> unused_;  // places in pairs_
  std::vector<uint32_t> slots_;   // a power of two; pair + 1, 0 for none
  size_t used_ = 0;               // of the slots
  int shift_ = 0;
  std::vector<std::unique_ptr<Place[]>> places_;  // in chunks: a growing array would need twice the memory
  uint32_t n_places_ = 0, free_ = kNone;
};

/// How often the pairs outside the table came: sums over the pairs that share a hash, so that a pair came at most that often.
class RarePairs {
 public:
  explicit RarePairs(size_t corpus) : sums_(std::bit_ceil(std::max<size_t>(1024, corpus / 8))) {}
  int64_t& sum(int32_t left, int32_t right) { return sums_[size_t(pair_hash(left, right) >> shift_)]; }
  int64_t largest() const { return *std::max_element(sums_.begin(), sums_.end()); }

 private:
  std::vector<int64_t> sums_;
  int shift_ = 64 - std::countr_zero(sums_.size());
};

}  // namespace vitrine
