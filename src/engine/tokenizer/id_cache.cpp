#include "tokenizer/id_cache.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/huge_pages.h"

namespace vitrine {

IdTable::IdTable(size_t slots) : long_(std::make_unique_for_overwrite<int32_t[]>(slots * kLongPerSlot)) {
  constexpr size_t kLarge = size_t{2} << 20;  // bytes
  if (slots * sizeof(Entry) >= kLarge) pages_ = map_huge_pages(slots * sizeof(Entry));
  if (!pages_.empty()) {
    slots_ = {reinterpret_cast<Entry*>(pages_.data()), slots};
    return;
  }
  small_.resize(slots);
  slots_ = small_;
}

IdTable::~IdTable() { unmap_huge_pages(pages_); }

void IdTable::clear() {
  std::fill(slots_.begin(), slots_.end(), Entry{});
  used_ = 0;
  long_used_ = 0;
}

bool IdTable::insert(const Key& key, size_t size, const int32_t* ids, size_t count) {
  if (count > std::numeric_limits<uint16_t>::max()) return true;
  if (2 * (used_.load(std::memory_order_relaxed) + 1) > slots_.size()) return false;
  const size_t long_size = slots_.size() * kLongPerSlot;
  size_t place = 0;
  if (count > kInline) {
    if (long_used_.load(std::memory_order_relaxed) + count > long_size) return false;
    place = long_used_.fetch_add(count, std::memory_order_relaxed);
    if (place + count > long_size) return false;
    std::copy(ids, ids + count, long_.get() + place);
  }
  for (size_t i = 0; i < kProbes; ++i) {
    Entry& e = slots_[(key.hash + i) & (slots_.size() - 1)];
    uint16_t its = 0;
    if (!__atomic_compare_exchange_n(&e.size, &its, kTaken, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
      if (its == size && is_word(e, key, size)) return true;  // another thread was first
      continue;
    }
    used_.fetch_add(1, std::memory_order_relaxed);
    e.a = key.a, e.b = key.b, e.count = uint16_t(count);
    if (count <= kInline) {
      std::copy(ids, ids + count, e.ids);
    } else {
      e.ids[0] = int32_t(place);
    }
    __atomic_store_n(&e.size, uint16_t(size), __ATOMIC_RELEASE);
    return true;
  }
  return true;
}

void IdTable::insert_all(const IdTable& other) {
  for (const Entry& e : other.slots_) {
    const uint16_t size = __atomic_load_n(&e.size, __ATOMIC_ACQUIRE);
    if (size == 0 || size == kTaken) continue;
    const std::span<const int32_t> ids = other.ids(e);
    static_cast<void>(insert({e.a, e.b, size > kShort ? e.a : hash_of(e.a, e.b, size)}, size, ids.data(), ids.size()));
  }
}

SharedIds::SharedIds(size_t text_bytes) {
  constexpr size_t kBytesPerSlot = 64;  // of English of a megabyte and more, so that its table need not grow
  table_ = std::make_shared<IdTable>(std::clamp(std::bit_floor(text_bytes / kBytesPerSlot), kFirstSlots, kMostSlots));
}

void SharedIds::refresh(std::shared_ptr<IdTable>& mine) {
  const std::lock_guard lock(mutex_);
  mine = table_;
}

void SharedIds::replace(std::shared_ptr<IdTable>& mine) {
  const std::lock_guard lock(mutex_);
  if (mine == table_) {
    if (table_->slots() < kMostSlots) {
      auto larger = std::make_shared<IdTable>(std::min(4 * table_->slots(), kMostSlots));
      larger->insert_all(*table_);
      table_ = std::move(larger);
    } else if (table_.use_count() == 2) {  // this thread's and this: nobody else looks into it
      table_->clear();
    } else {
      table_ = std::make_shared<IdTable>(kMostSlots);
    }
  }
  mine = table_;
}

void SharedIds::give_back(std::shared_ptr<IdTable>& mine) {
  const std::lock_guard lock(mutex_);
  mine.reset();
}

}  // namespace vitrine
