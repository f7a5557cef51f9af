#include "tokenizer/vocabulary.h"

#include <cstring>
#include <limits>

#include "base/error.h"

namespace vitrine {

uint64_t hash_text(std::string_view text) {
  // Multiply and fold, eight bytes at a time.
  constexpr uint64_t kMul = 0x9E3779B97F4A7C15u;
  uint64_t h = text.size() * kMul;
  const auto mix = [&h](uint64_t word) {
    h = (h ^ word) * kMul;
    h ^= h >> 29;
  };
  size_t i = 0;
  uint64_t word = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::memcpy(&word, text.data() + i, 8);
    mix(word);
  }
  if (i < text.size()) {
    word = 0;
    std::memcpy(&word, text.data() + i, text.size() - i);
    mix(word);
  }
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93u;
  return h ^ (h >> 32);
}

void Vocabulary::reserve(size_t pieces, size_t text_bytes) {
  spans_.reserve(pieces);
  text_.reserve(text_bytes);
  size_t slots = 16;
  while (slots < pieces * 2) slots *= 2;
  if (slots > slots_.size()) grow(slots);
}

void Vocabulary::grow(size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id < 0) continue;
    size_t at = hash_text(piece(slot.id)) & (slots - 1);
    while (slots_[at].id >= 0) at = (at + 1) & (slots - 1);
    slots_[at] = slot;
  }
}

Vocabulary::Added Vocabulary::add(std::string_view piece, int32_t id) {
  if (has(id)) return Added::id_exists;
  if (text_.size() + piece.size() > std::numeric_limits<uint32_t>::max())
    throw InputError("the pieces of a vocabulary take 4 GiB or more");
  if ((count_ + 1) * 2 > slots_.size()) grow(slots_.empty() ? 16 : slots_.size() * 2);
  const uint64_t h = hash_text(piece);
  size_t at = h & (slots_.size() - 1);
  for (; slots_[at].id >= 0; at = (at + 1) & (slots_.size() - 1))
    if (holds(slots_[at], h, piece)) return Added::piece_exists;
  slots_[at] = {uint32_t(h >> 32), id, uint32_t(text_.size()), uint32_t(piece.size())};
  if (size_t(id) >= spans_.size()) spans_.resize(size_t(id) + 1);
  spans_[size_t(id)] = {uint32_t(text_.size()), uint32_t(piece.size()), true};
  text_ += piece;
  ++count_;
  return Added::yes;
}

int32_t Vocabulary::find(std::string_view piece, uint64_t h) const {
  if (slots_.empty()) return -1;
  for (size_t at = h & (slots_.size() - 1); slots_[at].id >= 0; at = (at + 1) & (slots_.size() - 1))
    if (holds(slots_[at], h, piece)) return slots_[at].id;
  return -1;
}

}  // namespace vitrine
