#pragma once
// The ids of words already seen during one call of encode(). Texts repeat their words; merging them again is what costs.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

namespace vitrine {

/// Ids that are written one after the other. A vector's push_back() and insert() take several times as long for a few ids.
class IdList {
 public:
  size_t size() const { return size_; }
  const int32_t* data() const { return ids_.data(); }
  void clear() { size_ = 0; }
  /// Room for `count` more ids, of which used() tells how many have been written.
  int32_t* room(size_t count) {
    if (ids_.size() - size_ < count) ids_.resize(2 * (size_ + count));
    return ids_.data() + size_;
  }
  void used(size_t count) { size_ += count; }
  void push_back(int32_t id) {
    *room(1) = id;
    ++size_;
  }

 private:
  std::vector<int32_t> ids_;
  size_t size_ = 0;
};

class IdCache {
 public:
  /// Appends the ids of `word`, not empty, whose bytes must stay valid and unchanged. `whole` is the text around it, up to which
  /// bytes may be read. Words that are not known go to miss(word, ids), which appends their ids.
  template <class Miss>
  void append(std::string_view word, std::string_view whole, IdList& ids, const Miss& miss) {
    if (word.size() > kLongestWord) return miss(word, ids);
    const Key key = key_of(word, whole);
    const Entry* found = find(key, word.size());
    if (found == nullptr || found->size == 0) {
      const size_t first = ids.size();
      miss(word, ids);
      insert(key, word.size(), ids.data() + first, ids.size() - first);
      return;
    }
    const size_t count = found->count;
    if (count <= kInline) {
      std::memcpy(ids.room(kInline), found->ids, sizeof found->ids);
    } else {
      std::memcpy(ids.room(count), long_.data() + found->ids[0], count * sizeof(int32_t));
    }
    ids.used(count);
  }

 private:
  static constexpr size_t kLongestWord = 128, kInline = 3, kShort = 16;
  static constexpr size_t kFirstSlots = 128, kMostSlots = size_t{1} << 17, kMostLong = size_t{1} << 20;
  static constexpr size_t kProbes = 8;
  static constexpr uint64_t kA = 0x9E3779B97F4A7C15u, kB = 0xD6E8FEB86659FD93u;
  // A word of up to 16 bytes itself; of a longer one the hash and the place of its bytes.
  struct Key {
    uint64_t a, b, hash;
  };
  struct Mask {
    uint64_t a, b;
  };
  static constexpr std::array<Mask, kShort + 1> kMasks = [] {
    std::array<Mask, kShort + 1> masks{};
    for (size_t size = 1; size <= kShort; ++size)
      masks[size] = {~uint64_t{0} >> (size < 8 ? 64 - 8 * size : 0), size > 8 ? ~uint64_t{0} >> (128 - 8 * size) : 0};
    return masks;
  }();
  struct Entry {
    uint64_t a = 0, b = 0;
    uint16_t size = 0, count = 0;  // bytes of the word, 0: free; number of its ids
    int32_t ids[kInline] = {};     // of more: their place in long_
  };

  static uint64_t fold(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{a} * b;
    return uint64_t(product) ^ uint64_t(product >> 64);
  }
  static uint64_t hash_of(uint64_t a, uint64_t b, size_t size) { return fold(a ^ kA, b ^ kB ^ size); }
  static Key key_of(std::string_view word, std::string_view whole) {
    uint64_t a = 0, b = 0;
    const size_t size = word.size();
    if (size > kShort) {
      uint64_t hash = size, eight = 0;
      for (size_t i = 0; i < size; i += 8) {
        const size_t at = i + 8 <= size ? i : size - 8;  // the last eight bytes overlap those before
        std::memcpy(&eight, word.data() + at, 8);
        hash = fold(hash ^ eight ^ kA, kB);
      }
      return {hash, uint64_t(reinterpret_cast<uintptr_t>(word.data())), hash};
    }
    if (whole.data() + whole.size() - word.data() >= std::ptrdiff_t(kShort)) {
      std::memcpy(&a, word.data(), 8);
      std::memcpy(&b, word.data() + 8, 8);
      a &= kMasks[size].a;  // bytes behind the word become zero
      b &= kMasks[size].b;
    } else {
      char bytes[kShort] = {};
      std::memcpy(bytes, word.data(), size);
      std::memcpy(&a, bytes, 8);
      std::memcpy(&b, bytes + 8, 8);
    }
    return {a, b, hash_of(a, b, size)};
  }

  // The entry of a word, or the free one where it belongs; none: those near its place are taken by others. Few are looked at,
  // so that no choice of words makes this slow.
  Entry* find(const Key& key, size_t size) {
    const size_t mask = slots_.size() - 1;
    for (size_t i = 0; i < kProbes; ++i) {
      Entry& e = slots_[(key.hash + i) & mask];
      if (e.size == 0) return &e;
      if (e.size != size || e.a != key.a) continue;
      if (e.b == key.b || (size > kShort && std::memcmp(bytes_at(e.b), bytes_at(key.b), size) == 0)) return &e;
    }
    return nullptr;
  }
  static const char* bytes_at(uint64_t place) { return std::bit_cast<const char*>(uintptr_t(place)); }

  void insert(const Key& key, size_t size, const int32_t* ids, size_t count) {
    if (count > std::numeric_limits<uint16_t>::max()) return;
    if (2 * (used_ + 1) > slots_.size() || long_.size() + count > kMostLong) make_room();
    Entry* e = find(key, size);
    if (e == nullptr) {
      e = &slots_[key.hash & (slots_.size() - 1)];
    } else {
      ++used_;
    }
    *e = {key.a, key.b, uint16_t(size), uint16_t(count), {}};
    if (count <= kInline) {
      std::copy(ids, ids + count, e->ids);
    } else {
      e->ids[0] = int32_t(long_.size());
      long_.insert(long_.end(), ids, ids + count);
    }
  }
  // More slots; where there are as many as there may be, all words are forgotten.
  void make_room() {
    if (slots_.size() >= kMostSlots || long_.size() > kMostLong / 2) {
      std::fill(slots_.begin(), slots_.end(), Entry{});
      long_.clear();
      used_ = 0;
      return;
    }
    std::vector<Entry> old(slots_.size() * 4);
    old.swap(slots_);
    for (const Entry& e : old) {
      if (e.size == 0) continue;
      Entry* place = find({e.a, e.b, e.size > kShort ? e.a : hash_of(e.a, e.b, e.size)}, e.size);
      if (place != nullptr) *place = e;
    }
  }

  std::vector<Entry> slots_ = std::vector<Entry>(kFirstSlots);  // a power of two, at most half of them used
  std::vector<int32_t> long_;
  size_t used_ = 0;
};

}  // namespace vitrine
