#include "ops/kv_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "kernels/types.h"

namespace vitrine {

constexpr int64_t kPage = static_cast<int64_t>(kKeyBlock);

struct KvCache::Page {
  size_t group = 0;
  int users = 0;
  std::byte* data = nullptr;
};

namespace {

// `lines` lines of `numbers` numbers, which hold `components` components.
size_t head_block_bytes(DType type, int64_t lines, int64_t numbers, int64_t components) {
  const size_t line =
      type == DType::f32 ? static_cast<size_t>(numbers) * sizeof(float) : narrow_line_bytes(type, static_cast<size_t>(numbers));
  const size_t scales = narrow_scales(type, static_cast<size_t>(components)) * sizeof(uint16_t);
  return (static_cast<size_t>(lines) * line + scales + 63) / 64 * 64;
}

size_t padded(size_t page_bytes) { return (page_bytes + 63) & ~size_t{63}; }

}  // namespace

size_t key_block_bytes(const CacheLayer& layer) {
  return head_block_bytes(layer.types.keys, layer.head_dim, kPage, layer.head_dim);
}

size_t value_block_bytes(const CacheLayer& layer) {
  return head_block_bytes(layer.types.values, kPage, layer.v_dim, layer.v_dim);
}

DType cache_type_named(std::string_view name, std::string_view setting) {
  for (const DType type : {DType::f32, DType::f16, DType::q8_0, DType::q4_0})
    if (name == name_of(type)) return type;
  throw UsageError(std::string(setting) + " is \"" + std::string(name) + "\"; expected f32, f16, q8_0 or q4_0");
}

KvCache::KvCache(std::vector<CacheLayer> layers, int64_t context, int64_t largest_step, bool has_memory)
    : layers_(std::move(layers)), context_(context), largest_step_(largest_step), has_memory_(has_memory) {
  if (context <= 0 || largest_step <= 0)
    throw UsageError("a cache needs a context and a largest step of at least one position; found " + std::to_string(context) +
                     " and " + std::to_string(largest_step));
  size_t state_bytes = 0;
  for (const CacheLayer& layer : layers_) {
    Place place;
    place.state = state_bytes;
    state_bytes += (static_cast<size_t>(layer.state) * sizeof(float) + 63) / 64 * 64;
    VITRINE_CHECK(is_cache_type(layer.types.keys) && is_cache_type(layer.types.values), "a cache of a type that it may have");
    if (layer.n_kv_heads == 0) {
      places_.push_back(place);
      continue;
    }
    const auto same = [&](const Group& g) { return g.window == layer.window; };
    auto group = std::find_if(groups_.begin(), groups_.end(), same);
    if (group == groups_.end()) {
      Group fresh;
      fresh.window = layer.window;
      // A step of r rows reads window + r - 1 positions, which touch at most (window + r - 2) / page + 2 pages.
      if (layer.window != kNoWindow) fresh.ring = (layer.window + largest_step - 2) / kPage + 2;
      if (fresh.ring * kPage >= context + kPage) fresh.ring = 0;  // all positions fit: nothing to reuse
      groups_.push_back(fresh);
      group = groups_.end() - 1;
    }
    place.group = static_cast<size_t>(group - groups_.begin());
    place.key_bytes = key_block_bytes(layer);
    place.value_bytes = value_block_bytes(layer);
    const auto heads = static_cast<size_t>(layer.n_kv_heads);
    place.keys = group->page_bytes;
    place.values = place.keys + heads * place.key_bytes;
    group->page_bytes = place.values + heads * place.value_bytes;
    places_.push_back(place);
  }
  states_ = groups_.size();
  if (state_bytes > 0) groups_.emplace_back().page_bytes = state_bytes;
}

KvCache::~KvCache() { trim(); }

void KvCache::trim() {
  for (Group& group : groups_) {
    for (Page* page : group.free) {
      std::free(page->data);
      delete page;
    }
    pages_made_bytes_ -= group.free.size() * padded(group.page_bytes);
    group.free.clear();
  }
  pages_free_bytes_ = 0;
}

CacheSequence KvCache::sequence() {
  CacheSequence s;
  s.cache_ = this;
  s.pages_.resize(states_);
  for (size_t g = 0; g < states_; ++g) s.pages_[g].resize(static_cast<size_t>(groups_[g].ring));
  return s;
}

size_t KvCache::bytes_for(int64_t positions) const {
  size_t bytes = 0;
  const int64_t needed = (positions + kPage - 1) / kPage;
  for (size_t g = 0; g < states_; ++g) {
    const Group& group = groups_[g];
    bytes += group.page_bytes * static_cast<size_t>(group.ring == 0 ? needed : std::min(needed, group.ring));
  }
  if (has_states() && positions > 0) bytes += 2 * groups_[states_].page_bytes;  // now, and behind a step
  return bytes;
}

size_t KvCache::bytes_per_position() const {
  size_t bytes = 0;
  for (size_t g = 0; g < states_; ++g) bytes += groups_[g].page_bytes;
  return bytes / kKeyBlock;
}

KvCache::Page* KvCache::take(size_t group) {
  Group& g = groups_[group];
  Page* page;
  if (g.free.empty()) {
    const size_t bytes = padded(g.page_bytes);
    auto* data = has_memory_ ? static_cast<std::byte*>(std::aligned_alloc(64, bytes)) : nullptr;
    if (data == nullptr && has_memory_)
      throw RunError("no memory for " + std::to_string(bytes >> 20) + " MiB more of keys and values");
    page = new Page{group, 0, data};
    pages_made_bytes_ += bytes;
  } else {
    page = g.free.back();
    g.free.pop_back();
    pages_free_bytes_ -= padded(g.page_bytes);
  }
  page->users = 1;
  if (clears_ && has_memory_) std::memset(page->data, 0, g.page_bytes);
  return page;
}

void KvCache::release(Page* page) {
  if (page == nullptr || --page->users > 0) return;
  groups_[page->group].free.push_back(page);
  pages_free_bytes_ += padded(groups_[page->group].page_bytes);
}

CacheSequence::CacheSequence(const CacheSequence& other)
    : cache_(other.cache_),
      length_(other.length_),
      begun_(other.begun_),
      furthest_(other.furthest_),
      state_(other.state_),
      pages_(other.pages_) {
  if (state_ != nullptr) ++state_->users;
  for (const auto& group : pages_)
    for (KvCache::Page* page : group)
      if (page != nullptr) ++page->users;
}

CacheSequence::CacheSequence(CacheSequence&& other) noexcept
    : cache_(other.cache_),
      length_(other.length_),
      begun_(other.begun_),
      furthest_(other.furthest_),
      step_rows_(other.step_rows_),
      state_(std::exchange(other.state_, nullptr)),
      next_state_(std::exchange(other.next_state_, nullptr)),
      pages_(std::move(other.pages_)) {
  other.pages_.clear();
  other.length_ = other.begun_ = other.furthest_ = other.step_rows_ = 0;
}

CacheSequence& CacheSequence::operator=(CacheSequence other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(length_, other.length_);
  std::swap(begun_, other.begun_);
  std::swap(furthest_, other.furthest_);
  std::swap(step_rows_, other.step_rows_);
  std::swap(state_, other.state_);
  std::swap(next_state_, other.next_state_);
  std::swap(pages_, other.pages_);
  return *this;
}

CacheSequence::~CacheSequence() {
  for (const auto& group : pages_)
    for (KvCache::Page* page : group) cache_->release(page);
  if (state_ != nullptr) cache_->release(state_);
  if (next_state_ != nullptr) cache_->release(next_state_);
}

KvCache::Page*& CacheSequence::slot(size_t group, int64_t block) const {
  auto& pages = pages_[group];
  const int64_t ring = cache_->groups_[group].ring;
  if (ring == 0 && block >= static_cast<int64_t>(pages.size())) pages.resize(static_cast<size_t>(block + 1));
  return pages[static_cast<size_t>(ring == 0 ? block : block % ring)];
}

void CacheSequence::reserve(int64_t rows) {
  if (rows > cache_->largest_step_)
    throw UsageError("a step adds " + std::to_string(rows) + " positions to one sequence; this cache was made for at most " +
                     std::to_string(cache_->largest_step_));
  if (rows > cache_->context_ - length_)
    throw InputError("the sequence needs " + std::to_string(length_ + rows) + " positions; the context holds " +
                     std::to_string(cache_->context_) + ". Shorten the prompt or ask for fewer tokens");
  furthest_ = std::max(furthest_, length_ + rows);
  step_rows_ = rows;
  if (cache_->has_states() && next_state_ == nullptr) next_state_ = cache_->take(cache_->states_);
  for (size_t group = 0; group < pages_.size(); ++group)
    for (int64_t block = length_ / kPage; block * kPage < length_ + rows; ++block) {
      KvCache::Page*& page = slot(group, block);
      if (page != nullptr && page->users == 1) continue;
      KvCache::Page* const mine = cache_->take(group);
      if (page != nullptr) {  // shared: write to a copy
        if (block * kPage < length_) std::memcpy(mine->data, page->data, cache_->groups_[group].page_bytes);
        cache_->release(page);
      }
      page = mine;
    }
}

void CacheSequence::commit(int64_t rows) {
  if (cache_->has_states() && rows > 0) {
    if (rows != step_rows_)
      throw UsageError("a step of " + std::to_string(step_rows_) + " rows cannot count for its first " + std::to_string(rows) +
                       " alone: the layers with a recurrence have their state after the last row only. Run a step of the "
                       "rows that shall count");
    std::swap(state_, next_state_);
    if (next_state_ != nullptr && next_state_->users > 1) cache_->release(std::exchange(next_state_, nullptr));
  }
  length_ += rows;
}

int64_t CacheSequence::oldest_kept(size_t group, int64_t furthest) const {
  const int64_t ring = cache_->groups_[group].ring;
  return ring == 0 ? 0 : std::max<int64_t>(0, (furthest - 1) / kPage - ring + 1) * kPage;
}

bool CacheSequence::can_go_back(int64_t length, int64_t more) const {
  if (length == 0 || (length == length_ && more == 0)) return true;
  if (length > length_ || cache_->has_states()) return false;
  for (size_t g = 0; g < cache_->states_; ++g)
    if (std::max<int64_t>(0, length - cache_->groups_[g].window + 1) < oldest_kept(g, std::max(furthest_, length_ + more)))
      return false;
  return true;
}

void CacheSequence::truncate(int64_t length) {
  VITRINE_CHECK(length >= 0 && length <= length_, "a sequence is cut to at most its length");
  if (!can_go_back(length)) {
    if (cache_->has_states())
      throw UsageError("a sequence of " + std::to_string(length_) + " positions cannot go back to " + std::to_string(length) +
                       ": the layers with a recurrence have their state after the last position only. Start a new sequence");
    int64_t oldest = 0;
    for (size_t g = 0; g < cache_->states_; ++g)
      if (std::max<int64_t>(0, length - cache_->groups_[g].window + 1) < oldest_kept(g, furthest_))
        oldest = oldest_kept(g, furthest_);
    throw UsageError("a sequence of " + std::to_string(furthest_) + " positions cannot go back to " + std::to_string(length) +
                     ": its window layers keep positions from " + std::to_string(oldest) + " only");
  }
  if (length == 0 && state_ != nullptr) cache_->release(std::exchange(state_, nullptr));
  length_ = length;
}

CacheSequence CacheSequence::beginning(int64_t length) const {
  CacheSequence made = *this;
  made.truncate(length);
  for (size_t group = 0; group < pages_.size(); ++group) {
    const int64_t ring = cache_->groups_[group].ring, needed = (length + kPage - 1) / kPage;
    const int64_t blocks = ring == 0 ? std::ssize(made.pages_[group]) : (furthest_ + kPage - 1) / kPage;
    for (int64_t block = std::max(needed, blocks - (ring == 0 ? blocks : ring)); block < blocks; ++block)
      cache_->release(std::exchange(made.slot(group, block), nullptr));
    if (ring == 0 && needed < blocks) made.pages_[group].resize(static_cast<size_t>(needed));
  }
  return made;
}

size_t CacheSequence::bytes_to_add(int64_t rows) const {
  size_t bytes = cache_->has_states() && next_state_ == nullptr ? padded(cache_->groups_[cache_->states_].page_bytes) : 0;
  for (size_t group = 0; group < pages_.size(); ++group)
    for (int64_t block = length_ / kPage; block * kPage < length_ + rows; ++block) {
      const KvCache::Page* const page = page_at(group, block);
      if (page == nullptr || page->users > 1) bytes += padded(cache_->groups_[group].page_bytes);
    }
  return bytes;
}

const KvCache::Page* CacheSequence::page_at(size_t group, int64_t block) const {
  const auto& pages = pages_[group];
  const int64_t ring = cache_->groups_[group].ring, at = ring == 0 ? block : block % ring;
  return at < std::ssize(pages) ? pages[static_cast<size_t>(at)] : nullptr;
}

const CacheLayer& CacheSequence::shape(int layer) const { return cache_->layers_[static_cast<size_t>(layer)]; }

std::byte* CacheSequence::keys(int layer, int64_t block, int64_t kv_head) const {
  const KvCache::Place& place = cache_->places_[static_cast<size_t>(layer)];
  return slot(place.group, block)->data + place.keys + static_cast<size_t>(kv_head) * place.key_bytes;
}

std::byte* CacheSequence::values(int layer, int64_t block, int64_t kv_head) const {
  const KvCache::Place& place = cache_->places_[static_cast<size_t>(layer)];
  return slot(place.group, block)->data + place.values + static_cast<size_t>(kv_head) * place.value_bytes;
}

const float* CacheSequence::state(int layer) const {
  if (state_ == nullptr) return nullptr;
  return reinterpret_cast<const float*>(state_->data + cache_->places_[static_cast<size_t>(layer)].state);
}

float* CacheSequence::next_state(int layer) const {
  return reinterpret_cast<float*>(next_state_->data + cache_->places_[static_cast<size_t>(layer)].state);
}

float* CacheSequence::row(int layer, int64_t position) const {
  return reinterpret_cast<float*>(values(layer, position / kPage, 0)) + position % kPage * shape(layer).v_dim;
}

}  // namespace vitrine
