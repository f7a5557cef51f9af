#pragma once
// The pieces of a vocabulary: id to piece and piece to id. Open addressing over one block of text: a vocabulary of
// 256,000 pieces is built in some 15 ms and costs about 30 bytes per piece.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// A 64-bit hash of short strings, the same in every process.
uint64_t hash_text(std::string_view text);

class Vocabulary {
 public:
  enum class Added { yes, piece_exists, id_exists };

  void reserve(size_t pieces, size_t text_bytes);
  /// Gives `piece` the id >= 0. The caller bounds ids: the table grows to the largest. Errors: InputError when the pieces
  /// take 4 GiB or more.
  Added add(std::string_view piece, int32_t id);
  int32_t find(std::string_view piece) const { return find(piece, hash_text(piece)); }  // -1: not in the vocabulary
  int32_t find(std::string_view piece, uint64_t hash) const;                            // with its hash_text()
  /// Starts to fetch what find() will look at: many look-ups then wait for memory together, not one after the other.
  void prefetch(uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  }
  void prefetch_text(uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(text_.data() + slots_[hash & (slots_.size() - 1)].begin);
  }
  bool has(int32_t id) const { return id >= 0 && size_t(id) < spans_.size() && spans_[size_t(id)].used; }
  std::string_view piece(int32_t id) const {  // "" for an unused id
    if (!has(id)) return {};
    const Span& s = spans_[size_t(id)];
    return std::string_view(text_).substr(s.begin, s.size);
  }
  int32_t size() const { return int32_t(spans_.size()); }  // largest id + 1
  size_t count() const { return count_; }                  // pieces that find() knows

 private:
  struct Span {
    uint32_t begin = 0, size = 0;
    bool used = false;
  };
  struct Slot {
    uint32_t tag = 0;  // upper bits of the hash: saves most comparisons
    int32_t id = -1;
    uint32_t begin = 0, size = 0;  // of the piece in text_, here to save a look at spans_
  };
  bool holds(const Slot& slot, uint64_t hash, std::string_view piece) const {
    return slot.tag == uint32_t(hash >> 32) && std::string_view(text_).substr(slot.begin, slot.size) == piece;
  }
  void grow(size_t slots);

  std::string text_;
  std::vector<Span> spans_;
  std::vector<Slot> slots_;  // a power of two
  size_t count_ = 0;
};

}  // namespace vitrine
