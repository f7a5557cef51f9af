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

PairCuts::PairCuts(const std::array<bool, 128>& known) : cut_(size_t{1} << 16) {
  const auto is_known = [&](int c) { return c < 0x80 && known[size_t(c)]; };
  for (int left = 0; left < 256; ++left)
    for (int right = 0; right < 256; ++right) {
      const bool inside = right >= 0x80 && right < 0xC0;  // a byte that continues a character
      cut_[index(char(left), char(right))] = !inside && (is_known(left) || is_known(right));
    }
}

void PairCuts::add_piece(std::string_view piece) {
  for (size_t at = 1; at < piece.size(); ++at) {
    if ((static_cast<unsigned char>(piece[at]) & 0xC0) == 0x80) continue;
    const bool left = piece.substr(0, at).ends_with(kWordMarker), right = piece.substr(at).starts_with(kWordMarker);
    cut_[index(piece[at - 1], piece[at])] = 0;
    if (left) cut_[index(' ', piece[at])] = 0;
    if (right) cut_[index(piece[at - 1], ' ')] = 0;
    if (left && right) cut_[index(' ', ' ')] = 0;
  }
}

}  // namespace vitrine
