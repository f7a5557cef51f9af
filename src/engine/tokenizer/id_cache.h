#pragma once
// The ids of words already seen during one call of encode(). Texts repeat their words; merging them again is what costs. The
// threads of a call share one table, so that a word is merged once, and fresh memory, whose first touch costs as much as the
// look-ups in it, is needed once.
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
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

/// Words and their ids in a fixed number of slots. Several threads may find() and insert() at once, without locks: a slot is
/// taken once, and its word counts when its size is set, which is written last.
class IdTable {
 public:
  static constexpr size_t kLongestWord = 128, kInline = 3;
  /// A word of up to 16 bytes itself; of a longer one the hash and the place of its bytes.
  struct Key {
    uint64_t a, b, hash;
  };
  struct alignas(32) Entry {  // two in a cache line
    uint64_t a, b;
    uint16_t size, count;  // bytes of the word, 0: free; number of its ids
    int32_t ids[kInline];  // of more: their place in long_
  };

  /// `slots`: a power of two, at most half of which get used.
  explicit IdTable(size_t slots);
  ~IdTable();
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  size_t slots() const { return slots_.size(); }

  /// `word`: 1 to kLongestWord bytes. `whole` is the text around it, up to which bytes may be read.
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

  /// nullptr: the word is not here. Few slots are looked at, so that no choice of words makes this slow.
  const Entry* find(const Key& key, size_t size) const {
    const size_t mask = slots_.size() - 1;
    for (size_t i = 0; i < kProbes; ++i) {
      const Entry& e = slots_[(key.hash + i) & mask];
      const uint16_t its = __atomic_load_n(&e.size, __ATOMIC_ACQUIRE);
      if (its == 0) return nullptr;
      if (its == size && is_word(e, key, size)) return &e;
    }
    return nullptr;
  }
  std::span<const int32_t> ids(const Entry& e) const { return {e.count <= kInline ? e.ids : long_.get() + e.ids[0], e.count}; }
  /// Keeps a word that is not here. One whose slots are all taken is not kept. False: the table is full.
  bool insert(const Key& key, size_t size, const int32_t* ids, size_t count);
  /// Inserts all words of another table.
  void insert_all(const IdTable& other);
  /// Forgets all words; no other thread may be at work here.
  void clear();

 private:
  static constexpr size_t kShort = 16, kProbes = 8, kLongPerSlot = 8;
  static constexpr uint16_t kTaken = 0xFFFF;  // a size while the slot is being written
  static constexpr uint64_t kA = 0x9E3779B97F4A7C15u, kB = 0xD6E8FEB86659FD93u;
  struct Mask {
    uint64_t a, b;
  };
  static constexpr std::array<Mask, kShort + 1> kMasks = [] {
    std::array<Mask, kShort + 1> masks{};
    for (size_t size = 1; size <= kShort; ++size)
      masks[size] = {~uint64_t{0} >> (size < 8 ? 64 - 8 * size : 0), size > 8 ? ~uint64_t{0} >> (128 - 8 * size) : 0};
    return masks;
  }();

  static uint64_t fold(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{a} * b;
    return uint64_t(product) ^ uint64_t(product >> 64);
  }
  static uint64_t hash_of(uint64_t a, uint64_t b, size_t size) { return fold(a ^ kA, b ^ kB ^ size); }
  static const char* bytes_at(uint64_t place) { return std::bit_cast<const char*>(static_cast<uintptr_t>(place)); }
  static bool is_word(const Entry& e, const Key& key, size_t size) {
    return e.a == key.a && (e.b == key.b || (size > kShort && std::memcmp(bytes_at(e.b), bytes_at(key.b), size) == 0));
  }

  std::span<Entry> slots_;
  std::vector<Entry> small_;    // the slots of a small table
  std::span<std::byte> pages_;  // those of a large one, in huge pages
  std::unique_ptr<int32_t[]> long_;
  std::atomic<size_t> used_{0}, long_used_{0};
};

/// The table that the threads of a call use at present. A full one is followed by a larger one, the largest by an empty one.
class SharedIds {
 public:
  /// For a text of so many bytes.
  explicit SharedIds(size_t text_bytes);
  /// Makes `mine` the table in use.
  void refresh(std::shared_ptr<IdTable>& mine);
  /// The same, where `mine` is full.
  void replace(std::shared_ptr<IdTable>& mine);
  /// Of a thread that is done: what it wrote happens before another thread finds the table its own and clears it.
  void give_back(std::shared_ptr<IdTable>& mine);

 private:
  static constexpr size_t kFirstSlots = 128, kMostSlots = size_t{1} << 17;
  std::mutex mutex_;  // a table is given back under it, too
  std::shared_ptr<IdTable> table_;
};

/// One thread's access to them.
class IdCache {
 public:
  explicit IdCache(SharedIds& shared) : shared_(shared) { refresh(); }
  ~IdCache() { shared_.give_back(table_); }
  IdCache(const IdCache&) = delete;
  IdCache& operator=(const IdCache&) = delete;

  /// To be called now and then: takes over the table that another thread may have begun.
  void refresh() { shared_.refresh(table_); }

  /// Appends the ids of `word`, not empty, whose bytes must stay valid and unchanged. `whole` is the text around it, up to which
  /// bytes may be read. Words that are not known go to miss(word, ids), which appends their ids.
  template <class Miss>
  void append(std::string_view word, std::string_view whole, IdList& ids, const Miss& miss) {
    if (word.size() > IdTable::kLongestWord) return miss(word, ids);
    const IdTable::Key key = IdTable::key_of(word, whole);
    const IdTable::Entry* const found = table_->find(key, word.size());
    if (found == nullptr) {
      const size_t first = ids.size();
      miss(word, ids);
      const auto insert = [&] { return table_->insert(key, word.size(), ids.data() + first, ids.size() - first); };
      if (insert()) return;
      shared_.replace(table_);
      static_cast<void>(insert());
      return;
    }
    const size_t count = found->count;
    if (count <= IdTable::kInline) {
      std::memcpy(ids.room(IdTable::kInline), found->ids, sizeof found->ids);
    } else {
      std::memcpy(ids.room(count), table_->ids(*found).data(), count * sizeof(int32_t));
    }
    ids.used(count);
  }

 private:
  SharedIds& shared_;
  std::shared_ptr<IdTable> table_;
};

}  // namespace vitrine
