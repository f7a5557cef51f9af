#pragma once
// Keys and values of past positions, or rows of other kinds. Paged: a page holds kKeyBlock positions, aligned to position 0, of
// every layer that shares a window. Global layers keep all pages; a window layer keeps a ring of as many as its window needs.
// Pages are reference-counted, so that beams and shared prefixes share them; a page is copied before its second owner
// writes to it.
// A layer with a recurrence carries a state instead, as large at any length: one behind the positions that count, and one that
// the running step leaves and that a commit puts in its place.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/narrow.h"

namespace vitrine {

inline constexpr int64_t kNoWindow = 0;

/// In what type a cache keeps keys and values: f32, f16, q8_0 or q4_0. Each key and value is rounded by itself when it is
/// written, so what a position holds depends on nothing else.
struct CacheTypes {
  DType keys = DType::f32, values = DType::f32;
  bool operator==(const CacheTypes&) const = default;
};
/// The type of that name. Errors: UsageError that names `setting`, what was found and the four types.
DType cache_type_named(std::string_view name, std::string_view setting);

/// What one layer keeps per position.
struct CacheLayer {
  int64_t window = kNoWindow;                       // position i sees j when i - window < j <= i; kNoWindow: all j <= i
  int64_t n_kv_heads = 0, head_dim = 0, v_dim = 0;  // no heads: no keys and values
  int64_t state = 0;                                // floats of what it carries from row to row besides; 0: nothing
  CacheTypes types = {};
  /// A row of `width` numbers a position, as of a convolution's inputs, instead of keys and values by head.
  static CacheLayer of_rows(int64_t window, int64_t width) { return {window, 1, 0, width, 0, {}}; }
};

/// Bytes of the keys of one head in a block of kKeyBlock positions, and of its values: lines of numbers, then scales, in whole
/// cache lines.
size_t key_block_bytes(const CacheLayer& layer);
size_t value_block_bytes(const CacheLayer& layer);

class CacheSequence;

/// The cache of one model: its layout and the pages nobody uses at the moment. Sequences are made from it and must not
/// outlive it. Not thread-safe: one step at a time.
class KvCache {
 public:
  /// context: positions a sequence may reach. largest_step: rows one step may add to one sequence. has_memory: false for dry runs
  /// (ops/dry_run.h), whose pages nobody reads or writes.
  KvCache(std::vector<CacheLayer> layers, int64_t context, int64_t largest_step, bool has_memory = true);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  CacheSequence sequence();
  int64_t context() const { return context_; }
  int64_t largest_step() const { return largest_step_; }
  /// Bytes of all pages ever made (address space; memory is taken as positions are written).
  size_t bytes() const { return pages_made_bytes_; }
  /// Bytes of the pages that sequences hold.
  size_t bytes_in_use() const { return pages_made_bytes_ - pages_free_bytes_; }
  /// Gives the memory of pages that no sequence holds back to the system.
  void trim();
  /// From now on pages are zero where nothing was written since they were taken: for those whose bytes go to files.
  void clear_pages() { clears_ = true; }
  /// Bytes one sequence of `positions` needs at most.
  size_t bytes_for(int64_t positions) const;
  /// Bytes of keys, values and rows of one position in all layers.
  size_t bytes_per_position() const;

 private:
  friend class CacheSequence;
  struct Page;
  struct Group {  // the layers that share a window, or all layers' states
    int64_t window = 0;
    int64_t ring = 0;  // pages of the ring; 0: all pages are kept
    size_t page_bytes = 0;
    std::vector<Page*> free;
  };
  struct Place {  // of a layer within its group's page
    size_t group = 0;
    size_t keys = 0, values = 0;            // bytes from the page's start to the blocks of the first head
    size_t key_bytes = 0, value_bytes = 0;  // of a head's block
    size_t state = 0;                       // bytes from the start of a page of states
  };
  bool has_states() const { return states_ < groups_.size(); }
  Page* take(size_t group);
  void release(Page* page);

  std::vector<CacheLayer> layers_;
  std::vector<Place> places_;
  std::vector<Group> groups_;
  size_t states_ = 0;  // the group of states, behind those of keys and values; groups_.size(): no layer has any
  int64_t context_, largest_step_;
  bool has_memory_, clears_ = false;
  size_t pages_made_bytes_ = 0, pages_free_bytes_ = 0;
};

/// One sequence's positions in a cache. Copying shares the pages.
class CacheSequence {
 public:
  CacheSequence() = default;
  CacheSequence(const CacheSequence& other);
  CacheSequence(CacheSequence&& other) noexcept;
  CacheSequence& operator=(CacheSequence other) noexcept;
  ~CacheSequence();

  /// Positions that count. What a step wrote beyond them is not there until it commits.
  int64_t length() const { return length_; }
  /// Forgets the last positions. Errors: UsageError if a window layer has already overwritten what would be needed, or a layer
  /// carries a state, which is known behind the last position alone (all positions can be forgotten).
  void truncate(int64_t length);
  /// Whether truncate(length) would succeed, now or behind a step of `more` rows; never to more than there are.
  bool can_go_back(int64_t length, int64_t more = 0) const;
  /// Another sequence of the first positions, which shares the pages that these need. Errors: as truncate.
  CacheSequence beginning(int64_t length) const;
  /// Bytes of the pages that a step of so many rows takes from the cache.
  size_t bytes_to_add(int64_t rows) const;
  KvCache& cache() const { return *cache_; }
  /// Tokens of the prompt that the sequence began with, which Step::add says when it is empty.
  int64_t begun() const { return begun_; }

  // For Step and attention -----------------------------------------------------------------------------------------
  /// Makes the pages of positions [length, length + rows) ours alone. Errors: InputError if the context is too short,
  /// UsageError if rows exceeds the largest step.
  void reserve(int64_t rows);
  /// The first `rows` of the step count. Errors: UsageError if these are some but not all, and a layer carries a state.
  void commit(int64_t rows);
  void begin(int64_t prompt) { begun_ = prompt; }
  const CacheLayer& shape(int layer) const;
  /// Keys [head_dim][kKeyBlock] and values [kKeyBlock][v_dim] of the block that begins at position block * kKeyBlock: floats, or
  /// lines of the layer's narrow type (kernels/narrow.h) with the scales behind them.
  std::byte* keys(int layer, int64_t block, int64_t kv_head) const;
  std::byte* values(int layer, int64_t block, int64_t kv_head) const;
  /// What a layer carries behind the positions that count; null: there are none, and it is zero.
  const float* state(int layer) const;
  /// Where the step puts what the layer carries behind its last row.
  float* next_state(int layer) const;
  /// The row of a position, in a layer of rows.
  float* row(int layer, int64_t position) const;

 private:
  friend class KvCache;
  KvCache::Page*& slot(size_t group, int64_t block) const;
  const KvCache::Page* page_at(size_t group, int64_t block) const;
  int64_t oldest_kept(size_t group, int64_t furthest) const;  // position
  KvCache* cache_ = nullptr;
  int64_t length_ = 0, begun_ = 0;
  int64_t furthest_ = 0;   // one past the last position ever written: what rings may have overwritten
  int64_t step_rows_ = 0;  // of the running step, which next_state_ is behind
  KvCache::Page *state_ = nullptr, *next_state_ = nullptr;  // the first may be shared, and nobody writes to it
  mutable std::vector<std::vector<KvCache::Page*>> pages_;  // per group; null where nothing was written
};

}  // namespace vitrine
