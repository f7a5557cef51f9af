#include "tokenizer/bpe.h"

#include "base/utf8.h"
#include "tokenizer/vocabulary.h"

namespace vitrine {

void WordCache::prepare(size_t text_bytes) {
  constexpr size_t kShortText = 512;
  if (text_bytes < kShortText) return;
  size_t slots = 64;
  while (slots < kMostSlots && slots * 8 < text_bytes) slots *= 2;
  slots_.assign(slots, {});
}

std::span<const WordToken> WordCache::find(std::string_view word) const {
  if (slots_.empty() || word.size() > kLongestWord) return {};
  const Entry& entry = slots_[hash_text(word) & (slots_.size() - 1)];
  if (entry.word != word) return {};
  return {tokens_.data() + entry.first, entry.count};
}

void WordCache::insert(std::string_view word, std::span<const WordToken> tokens) {
  if (slots_.empty() || word.size() > kLongestWord) return;
  if (tokens_.size() + tokens.size() > kMostTokens) {  // words replaced by newer ones leave their tokens behind
    std::fill(slots_.begin(), slots_.end(), Entry{});
    tokens_.clear();
  }
  slots_[hash_text(word) & (slots_.size() - 1)] = {word, uint32_t(tokens_.size()), uint32_t(tokens.size())};
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

namespace {
// The character that ends at text[end].
uint32_t character_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return utf8_at(text.substr(0, end), begin).code;
}
}  // namespace

void SafeCuts::add_piece(std::string_view piece) {
  if (piece.size() <= marker_.size()) return;
  for (size_t at = piece.find(marker_, 1); !marker_.empty() && at != std::string_view::npos; at = piece.find(marker_, at + 1)) {
    const uint32_t before = character_before(piece, at);
    const auto it = std::lower_bound(joined_before_.begin(), joined_before_.end(), before);
    if (it == joined_before_.end() || *it != before) joined_before_.insert(it, before);
    if (joined_before_.size() > kMostJoined) marker_ = {};
  }
}

size_t SafeCuts::word_end(std::string_view text, size_t begin) const {
  if (marker_.empty()) return text.size();
  for (size_t at = text.find(marker_, begin + 1); at != std::string_view::npos; at = text.find(marker_, at + 1)) {
    const uint32_t before = character_before(text, at);
    if (!std::binary_search(joined_before_.begin(), joined_before_.end(), before)) return at;
  }
  return text.size();
}

}  // namespace vitrine
